"""The result of a dry run, below the buttons of the form."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.shared.widgets import code_block
from scalebook.app.shared.words import plural, sentence
from scalebook.training.experiments import Experiment
from scalebook.training.jobs import dry_runs

EVERY_S = 1.0
MOST_METRICS = 6


def show(experiment: Experiment) -> None:
    """Draw how the dry run of this config goes on, or went; nothing if there was none."""
    if resources.dry_runs_now(experiment):
        _wait(experiment)
    elif (result := dry_runs.result(experiment)) is not None and result.problem:
        st.error(f"**Dry run failed.** {sentence(result.problem)}", icon=":material/error:")
        if result.frame:
            code_block(result.frame, wrap=True)
    elif result is not None:
        st.success(_words(result, experiment), icon=":material/check:")


@st.fragment(run_every=EVERY_S)
def _wait(experiment: Experiment) -> None:
    if resources.dry_runs_now(experiment):
        st.info(
            f"Dry run: one batch {workers_words(experiment)}. This takes a few seconds.",
            icon=":material/hourglass_top:",
        )
    else:
        st.rerun()


def workers_words(experiment: Experiment) -> str:
    """`in 2 worker processes`."""
    strategy = experiment.strategy
    if strategy.is_simulated:
        return f"of each of {plural(strategy.workers, 'virtual worker')}, in one process"
    return "in one process" if strategy.workers == 1 else f"in {strategy.workers} worker processes"


def _words(result: dry_runs.DryRunResult, experiment: Experiment) -> str:
    metrics = [f"{name} {value:.4g}" for name, value in result.metrics.items()]
    more = f" and {len(metrics) - MOST_METRICS} more" if len(metrics) > MOST_METRICS else ""
    logged = f" It logged {', '.join(metrics[:MOST_METRICS])}{more}." if metrics else " It logged nothing."
    return (
        f"**Dry run finished** in {result.seconds:.1f} s. It ran one batch of training {workers_words(experiment)}, "
        f"and one of validation if the config validates.{logged} No run was recorded."
    )
