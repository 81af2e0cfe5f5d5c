"""Runs side by side: curves on one axis, a table, what differs in their configs."""

from collections.abc import Sequence

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare import cells, data, widgets
from scalebook.app.navigation import RUNS
from scalebook.app.runs import data as runs
from scalebook.app.shared import charts, html, links
from scalebook.app.shared.charts import CurveLook
from scalebook.app.shared.widgets import number_box, page_title, press_button, turn_better
from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Experiment
from scalebook.training.notebook import ComparisonCell, compare_runs, labels
from scalebook.training.tracking import Goal, RunRecord, directions, names

EVERY_S = 2.0
OFFERED = 50
SAVE = "compare-save"
TURN = "compare-better"


def show(run_ids: Sequence[str]) -> None:
    """Draw the page for the runs in its address."""
    records = _known(run_ids)
    title, actions = st.columns([3, 2], vertical_alignment="bottom")
    with title:
        page_title("Compare")
    address = resources.mlflow_address()
    with actions:
        row = st.container(horizontal=True, horizontal_alignment="right")
    if address and records:
        url = links.compare(address, [record.id for record in records], [record.experiment_id for record in records])
        with row:
            st.link_button("Open in MLflow", url, icon=":material/open_in_new:")
    _choice(records)
    if not records:
        html.empty("No runs chosen", "Choose runs above, or tick them on the Runs page and press Compare.")
        st.page_link(RUNS.script, label="Runs", icon=RUNS.icon)
        return
    metrics = list(dict.fromkeys(metric for record in records for metric in runs.curve_metrics(record)))
    main = names.main_metric([name for record in records for name in record.metrics])
    if main is None:
        _without_curves(records)
        return
    measured = sorted({metric for record in records for metric in runs.all_metrics(record)} - {*metrics})
    metric_column, more_column, target_column = st.columns([2, 2, 1], vertical_alignment="bottom")
    with metric_column:
        requested = st.query_params.get("metric", main)
        begun = requested if requested in metrics else main
        metric = st.selectbox("Metric", metrics, metrics.index(begun), key=f"metric-{begun}")
        if metric != begun:
            st.query_params["metric"] = metric
    with more_column:
        others = [name for name in [*metrics, *measured] if name != metric]
        more = st.multiselect("More metrics", others, key=f"more-{metric}", placeholder="none", disabled=not others)
    with target_column:
        hint = "Adds the updates, samples and seconds that each run took to reach the target."
        target = number_box("Target", None, "target", empty="none", hint=hint, in_address=True)
    if isinstance(target, str):
        st.error(f"Target: {target!r} is not a number. Enter a number, such as 0.95.")
        target = None
    hint = (
        "Runs that differ only in their seed become one line: the mean, with a band for its 95 % interval (or the "
        "range, if there are fewer than 5 runs)."
    )
    look = charts.choose_axis([names.is_simulated(record.tags) for record in records])
    grouped = st.toggle("Group seeds", key="grouped", bind="query-params", help=hint)
    with row:
        _save(
            records,
            ComparisonCell("", "", [], metric, [look.axis], target, "log" if look.log_y else "linear", _said(metric)),
            metrics,
        )
    live = any(record.ended is None for record in records)
    st.fragment(_body, run_every=EVERY_S if live else None)(records, [metric, *more], target, look, grouped)


def _without_curves(records: Sequence[RunRecord]) -> None:
    """Draw the empty page; look for metrics again while a run is active."""
    live = any(record.ended is None for record in records)
    more = "; this page refreshes every few seconds" if live else ", and they have ended"
    html.empty("No curve yet", f"These runs have logged no metric yet{more}.")
    if live:
        st.fragment(_look_again, run_every=EVERY_S)([record.id for record in records])


def _look_again(run_ids: Sequence[str]) -> None:
    if any(runs.curve_metrics(resources.reader().run(run_id)) for run_id in run_ids):
        st.rerun()


def _save(records: Sequence[RunRecord], cell: ComparisonCell, metrics: list[str]) -> None:
    """The button that saves what the page shows as a comparison cell of a notebook."""
    if press_button("Save in a notebook", SAVE, type="primary", icon=":material/save:"):
        state.clicks().mark_handled(SAVE, done=False)
        possible = data.of_runs(resources.workspace(), records, cell, metrics, resources.description())
        if possible:
            cells.ask_comparison(possible, leads_there=True)
        state.show_message("None of these runs belongs to an experiment in a notebook.", ":material/error:")
        st.rerun()


def _known(run_ids: Sequence[str]) -> list[RunRecord]:
    """The runs that the store has, with a warning that names the others."""
    records, unknown = [], []
    for run_id in dict.fromkeys(run_ids):
        try:
            records.append(resources.reader().run(run_id))
        except KeyError:
            unknown.append(run_id)
    if unknown:
        st.warning(f"MLflow has no run {', '.join(unknown)}.")
    return records


def _choice(records: Sequence[RunRecord]) -> None:
    """The choice of runs: those in the address are chosen, the newest are offered."""
    offered = {record.id: record for record in [*records, *resources.all_runs()[:OFFERED]]}
    current = [record.id for record in records]
    called = labels(list(offered.values()), lambda record: record.title)
    called |= labels(records, lambda record: record.title)  # as the chart and the tables call them
    key = "chosen-" + ",".join(run_id[:6] for run_id in current)
    chosen = st.multiselect(
        "Runs", list(offered), current, format_func=called.__getitem__, key=key,
        placeholder="Choose runs", label_visibility="collapsed",
    )  # fmt: skip
    if chosen != current:
        st.query_params["runs"] = ",".join(chosen)
        st.rerun()


def _said(metric: str) -> Goal | None:
    """The goal that the address gives for the metric."""
    goal, _, name = st.query_params.get("better", "").partition(":")
    return next((candidate for candidate in directions.GOALS if candidate == goal and name == metric), None)


def _experiments(records: Sequence[RunRecord]) -> dict[str, Experiment]:
    """The experiment of each run, by run; without configs that cannot be read."""
    by_run = {}
    for record in records:
        try:
            config = yaml.load(resources.config_text(record))
        except ConfigError:
            continue
        if isinstance(config, dict):
            by_run[record.id] = Experiment(config, resources.description())
    return by_run


def _body(
    records: Sequence[RunRecord], metrics: Sequence[str], target: float | None, look: CurveLook, grouped: bool
) -> None:
    """A chart for each metric; table and target are those of the first metric."""
    ids, experiments = [record.id for record in records], _experiments(records)
    by_metric = [
        compare_runs(
            resources.reader(),
            ids,
            metric,
            None if i else target,
            experiments=experiments,
            grouped=grouped,
            goal=_said(metric),
        )
        for i, metric in enumerate(metrics)
    ]
    for i, comparison in enumerate(by_metric):
        widgets.comparison_curves(
            comparison, look.axis, look.log_y, f"compare-{i}" if i else "compare", smoothing=look.smoothing
        )
    widgets.comparison_table(by_metric[0])
    if goal := turn_better(metrics[0], by_metric[0].direction, TURN, metrics[0], said=True):
        state.clicks().mark_handled(TURN)
        st.query_params["better"] = f"{goal}:{metrics[0]}"
        st.rerun()
    widgets.why(by_metric[0])
    widgets.measured(by_metric[0].rows)
    st.header("Config differences")
    widgets.differences(by_metric[0].differences, [row.experiment for row in by_metric[0].rows])
