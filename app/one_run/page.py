"""The page of one run; redraws every second or two while the run is active."""

from functools import partial
from html import escape
from typing import Any

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPOSE, NOTEBOOK, RUNS, SEARCH
from scalebook.app.one_run import data, widgets, workers
from scalebook.app.one_run.data import origin
from scalebook.app.runs import data as runs
from scalebook.app.runs.data import RunView, copy_of
from scalebook.app.runs.records import with_workers
from scalebook.app.runs.remarks import offer_direction, show_remarks
from scalebook.app.shared import charts, drafts, html, links
from scalebook.app.shared.charts import CurveLook
from scalebook.app.shared.widgets import call_page, page_title
from scalebook.training.base import ConfigError
from scalebook.training.base.files import safe_reading, yaml
from scalebook.training.experiments import Experiment
from scalebook.training.jobs import job_requests, part_folders, read_usage
from scalebook.training.tracking import names

EVERY_S = 1.0
CURVES_EVERY_S = 2.0
"""Charts change less often: the browser rebuilds a changed chart, which takes 80 ms and blinks."""
DESCRIBED_EVERY_S = 1.0
LINES = len(charts.PALETTE)  # workers whose throughput is drawn
FEW = 4
"""Workers up to which the table of pushes fits below their bars."""
CHARTS = 6  # more do not help while it runs; all are in MLflow


def show(run_id: str) -> None:
    """Draw the page, or say that there is no such run."""
    try:
        view = _load(run_id)
    except KeyError:
        page_title("No such run", f"{resources.workspace().tracking_uri()} has no run with the id {run_id}.")
        return
    call_page(view.title)
    _head(view)
    _siblings(view)
    show_remarks(view.record)
    below_head = st.container()
    look = charts.choose_axis([view.is_simulated])
    live = not view.ended
    st.fragment(_standing, run_every=EVERY_S if live else None)(run_id, live)
    st.fragment(_curves, run_every=CURVES_EVERY_S if live else None)(run_id, look)
    st.fragment(_workers, run_every=EVERY_S if live else None)(run_id)
    st.fragment(_usage, run_every=CURVES_EVERY_S if live else None)(run_id)
    st.fragment(_tabs, run_every=CURVES_EVERY_S if live else None)(run_id)
    described = resources.description_at_hand() is not None
    with below_head:
        st.fragment(_stale, run_every=None if described else DESCRIBED_EVERY_S)(run_id, described)


def _load(run_id: str) -> RunView:
    workspace = resources.workspace()
    view = runs.view(workspace, resources.reader().run(run_id), resources.waiting_reasons)
    return with_workers(view, resources.figures_by_worker(view))


def _head(view: RunView) -> None:
    _back(view)
    left, right = st.columns([3, 2], vertical_alignment="center")
    with left:
        widgets.head(view)
    address = resources.mlflow_address()
    with right:
        intent = widgets.buttons(view, links.run(address, view.record.experiment_id, view.id) if address else None)
    if intent == "stop" and view.job:
        job_requests.stop(view.job, "in the app")
        st.rerun()
    elif intent in ("resume", "again") and view.job:
        begin = job_requests.resume if intent == "resume" else job_requests.again
        try:
            new = begin(resources.workspace(), view.job, resources.description())
        except ConfigError as error:
            st.error(str(error))
        else:
            st.switch_page(RUNS.script, query_params={"run": new.id})
    elif intent == "duplicate":
        draft = copy_of(resources.workspace(), view)
        drafts.save(resources.workspace(), draft)
        st.switch_page(COMPOSE.script, query_params={"notebook": draft.notebook})


def _back(view: RunView) -> None:
    """Draw the links back: to a trial's search, to the cell of the notebook, to all runs."""
    started_from = origin(resources.workspace(), view.record)
    back = ":material/arrow_back:"
    with st.container(horizontal=True, vertical_alignment="center", key="run-origin"):
        if started_from.search is not None:
            label = f"{started_from.search.name()}, trial {started_from.trial}"
            st.page_link(SEARCH.script, label=label, icon=back, query_params={"search": started_from.search.id})
        if started_from.notebook is not None:
            gone = "" if started_from.cell else " (this cell is gone)"
            st.page_link(
                NOTEBOOK.script, label=f"{started_from.path}{gone}",
                icon=":material/menu_book:" if started_from.search else back,
                query_params=NOTEBOOK.cell(started_from.notebook.name, started_from.cell),
            )  # fmt: skip
        elif started_from.path:
            html.draw(f'<span class="sb-dim">{escape(started_from.path)}</span>', narrow=True)
        st.page_link(RUNS.script, label="All runs", icon=":material/view_list:")


def _siblings(view: RunView) -> None:
    """Draw links to the runs of the same experiment with other seeds; this run is no link."""
    record = view.record
    reader = resources.reader()
    if record.notebook and names.TAG_TRIAL not in record.tags:
        reader = resources.notebook_runs(record.notebook)
    siblings = runs.siblings(reader, record)
    if len(siblings) > 1:
        workspace = resources.workspace()
        with st.container(horizontal=True, vertical_alignment="center"):
            for sibling in siblings:
                seed = sibling.tags.get(names.TAG_SEED, "?")
                label = f"seed {seed} ({runs.view(workspace, sibling).state})"
                if sibling.id == view.id:
                    html.draw(f'<b aria-current="page">{escape(label)}</b>', narrow=True)
                else:
                    st.page_link(RUNS.script, label=label, query_params={"run": sibling.id})


def _standing(run_id: str, was_live: bool) -> None:
    view = _load(run_id)
    if was_live and view.ended:
        st.rerun()
    with st.container(key="live-standing"):
        widgets.standing(view)
        widgets.figures(view)
        offer_direction([view], f"better-{view.id}")


def _curves(run_id: str, look: CurveLook) -> None:
    """Draw the curves of the chosen or the main metrics, then the throughput of each worker."""
    view = _load(run_id)
    with st.container(key="live-curves"):
        chosen, in_one = widgets.metrics_choice(runs.all_metrics(view.record))
        metrics = chosen or _main_metrics(view)
        all_rates = runs.rates(view.record)
        rates = all_rates[:LINES]
        figures = resources.figures_by_worker(view)
        wanted = list(dict.fromkeys([*metrics, *rates]))
        curves = resources.curves(view.record, [metric for metric in wanted if metric not in figures.last])
        curves += [figures.curve(run_id, metric) for metric in wanted if metric in figures.last]
        own = [curve for curve in curves if curve.metric in metrics]
        if own and in_one:
            widgets.together(own, look, view.record.tags)
        elif own:
            widgets.curves(own, look, not view.ended, view.record.tags)
        elif not view.ended:
            st.caption("Curves start after a few updates or the first validation.")
        workers.throughput(
            [curve for curve in curves if curve.metric in rates], look.axis, look.x_title, view.is_simulated
        )
        if len(all_rates) > LINES:
            st.caption(
                f"Only the first {LINES} of {len(all_rates):,} workers are shown. The metrics of the other workers "
                "are in the list above."
            )


def _main_metrics(view: RunView) -> list[str]:
    """The metrics to draw if none is chosen. Each chart keeps its place when others are added."""
    metrics = runs.in_place(state.recall(f"charts-{view.id}", []), runs.curve_metrics(view.record), CHARTS)
    state.remember(f"charts-{view.id}", metrics)
    return metrics


def _workers(run_id: str) -> None:
    """Draw what each worker did: from the run's own record while it is active, from its totals afterwards."""
    view = _load(run_id)
    record, pushes = view.record, resources.pushes(view)
    record_ = pushes if pushes is not None and not view.ended else None
    split = [("all", record_.shares() if record_ else runs.shares(record))]
    if view.workers > 1:
        split += [
            (f"worker {i}", record_.shares(i) if record_ else runs.shares(record, i)) for i in range(view.workers)
        ]
    with st.container(key="live-workers"):
        left, right = st.columns(2, gap="large")
    with left:
        workers.time_split(split)
    with right:
        if (placed := resources.parts(view)) is not None:
            workers.parts(placed)
        if pushes is not None:
            ran = Experiment(config_of(view) or {}, resources.description())
            graph = workers.peer_graph(ran.strategy, view.workers, pushes.there)
            if graph is not None and pushes.workers:
                workers.peers(graph, pushes)
            workers.staleness(pushes)
    if pushes is not None:
        with left if view.workers <= FEW else right:
            workers.pushes(pushes)
            died = {lost.worker for lost in view.job.lost_workers()} if view.job else set()
            workers.comings(pushes, view.ended, died)
    with right:
        widgets.samples(resources.samples_picture(record))


def _usage(run_id: str) -> None:
    job = _load(run_id).job
    with st.container(key="live-usage"):
        workers.usage_over_time(read_usage(job) if job else [])


def _stale(run_id: str, was_described: bool) -> None:
    """Draw what has changed in the experiment since the run, once all classes are described."""
    description = resources.description_at_hand()
    if description is None:
        return
    if not was_described:
        st.rerun()
    view = _load(run_id)
    cell = data.cell_of(resources.workspace(), view.record)
    ran = config_of(view)
    if cell is None or ran is None:
        return
    changes = data.changes_since(view.record, Experiment(ran, description), cell, description)
    if changes is not None:
        widgets.stale_notice(changes)


MOST_CONFIG = 2**24  # bytes
TABS = ("Config", "Log", "Files", "Other runs", "Environment")


def _tabs(run_id: str) -> None:
    """Draw the tabs below the curves: config, log, files, other runs of its experiment, environment. For a failed run
    the log is open."""
    view = runs.view(resources.workspace(), resources.reader().run(run_id), resources.waiting_reasons)
    draws = (_config, _log, _file_list, _others, _environment)
    with st.container(key="live-files"):
        front = "Log" if view.state == "failed" else "Config"
        tabs = st.tabs(TABS, default=front, key="files", bind="query-params")
    for tab, draw in zip(tabs, draws, strict=True):
        if tab.open:
            with tab:
                draw(view)


def _config(view: RunView) -> None:
    widgets.config(config_text(view))


def _file_list(view: RunView) -> None:
    widgets.files(data.files(resources.reader(), view.id, view.job))


def _others(view: RunView) -> None:
    others = runs.views(
        resources.workspace(), data.other_runs(resources.reader(), view.record), resources.waiting_reasons
    )
    widgets.others(others, view.id, view.record.tags.get(names.TAG_CONFIG_HASH, ""))


def _environment(view: RunView) -> None:
    widgets.environment(view.record)


def _log(view: RunView) -> None:
    job, failed = view.job, view.state == "failed"
    looked_for = widgets.log_box(
        partial(safe_reading.read_end, job.log, data.MOST_BYTES) if job and job.log.exists() else None,
        f"{view.title}-log",
    )
    if looked_for and job:
        widgets.log_lines(*data.found_in(job.log, looked_for))
    else:
        widgets.log(job.tail() if job else "", failed)
    for node, part in (part_folders(job) if job else {}).items():
        widgets.other_log(node, part.tail())


def config_text(view: RunView) -> str:
    """The config that ran, from the job's folder or the store; "" if neither has it."""
    job = view.job
    if job and job.config.exists():
        return safe_reading.read_end(job.config, MOST_CONFIG).decode("utf-8", "replace")
    return resources.config_text(view.record)


def config_of(view: RunView) -> dict[str, Any] | None:
    """The config that ran; None if it cannot be read."""
    try:
        config = yaml.load(config_text(view))
    except ConfigError:
        return None
    return config if isinstance(config, dict) else None
