"""What a model logs, before its first run: a button that runs two batches, and the reason if that fails."""

from collections.abc import Mapping, Sequence

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import sentence
from scalebook.training.experiments import Experiment, logged_metrics, validate
from scalebook.training.tracking import RunRecord, names

EVERY_S = 1.0
LABEL = "List the metrics it logs"
HELP = (
    "Trains and validates on two batches, on the CPU, in a separate process. No run is recorded. After that, a "
    "metric that the model does not log is rejected before anything starts."
)
PENDING = "Running two batches to see which metrics the model logs. This takes a few seconds."


def what_it_logs(experiments: Mapping[str, Experiment], runs: Sequence[RunRecord], key: str) -> list[str]:
    """The validation metrics that two batches of these experiments have logged. Draws the button while neither `runs`
    nor an earlier click tell what some of them log."""
    results = {name: logged_metrics.cached_metrics(experiment) for name, experiment in experiments.items()}
    ran = {run.cell for run in runs if names.validation_metrics(run.metrics)}
    unknown = [
        name
        for name, experiment in experiments.items()
        if name not in ran and ((result := results[name]) is None or result.problem) and not _is_wrong(experiment)
    ]
    if resources.looks_at_metrics():
        _wait()
    elif unknown:
        failed = {name: result.problem for name in unknown if (result := results[name]) is not None}
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"logs-{key}"):
            if press_button(LABEL, f"find-out-{key}", icon=":material/manage_search:", type="tertiary", help=HELP):
                resources.look_at_metrics([experiments[name] for name in unknown])
                state.clicks().mark_handled(f"find-out-{key}", done=False)
                st.rerun()
        for name, problem in failed.items():
            st.warning(f"Could not find out which metrics {name or 'the model'} logs. {sentence(problem)}")
    return list(dict.fromkeys(metric for result in results.values() if result for metric in result.validation))


def _is_wrong(experiment: Experiment) -> bool:
    return any(problem.severity == "error" for problem in validate(experiment))


@st.fragment(run_every=EVERY_S)
def _wait() -> None:
    if resources.looks_at_metrics():
        st.caption(PENDING)
    else:
        st.rerun()
