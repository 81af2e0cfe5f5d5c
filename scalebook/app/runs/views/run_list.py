"""All runs of the workspace: the living ones on top, live; then the table with filter and pages."""

import hashlib
from contextlib import suppress
from html import escape

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPARE, RUNS
from scalebook.app.runs.components import progress, run_table, usage
from scalebook.app.runs.services import devices, runs
from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared.components import broken, html, page_head, press
from scalebook.training.errors import ConfigError
from scalebook.training.jobs import moving, queue
from scalebook.training.jobs.folder import JobFolder

PER_PAGE = 50
OLDEST_FIRST = ("attributes.start_time ASC",)
EVERY_S = 1.0
DEVICES_EVERY_S = 2.0
MOST_WAITING = 200  # are put in order
MOVES: tuple[tuple[str, str, moving.Direction, int], ...] = (
    ("Start earlier:", "arrow_upward", "earlier", 0),
    ("Start later:", "arrow_downward", "later", -1),
)
LIVE_SHOWN = 8  # a search may have hundreds waiting; they are in the table


def show() -> None:
    """Heading, filters, living runs, table."""
    title, filters = st.columns([1, 2], vertical_alignment="bottom")
    with title:
        page_head.title("Runs")
    with filters, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"):
        text = st.text_input("Find", key="find", placeholder="Part of a name", bind="query-params", width=260,
                             label_visibility="collapsed", icon=":material/search:")  # fmt: skip
        word = st.selectbox("State", ["any state", *runs.STATES], key="state", label_visibility="collapsed", width=160)
    broken.draw(resources.broken_records())
    living = _living()
    _devices()
    st.fragment(_show_living, run_every=EVERY_S if living else None)([view.id for view in living])
    _table(text or "", "" if word == "any state" else word or "")


def _devices() -> None:
    """Who holds what; looked at only while it is open."""
    with (fold := st.expander("Devices", key="devices", icon=":material/memory:", on_change="rerun")):
        if fold.open:
            st.fragment(_show_devices, run_every=DEVICES_EVERY_S)()


def _show_devices() -> None:
    usage.devices(devices.device_state(resources.workspace()))


def _living() -> list[RunView]:
    """Runs that run, then those that wait, in the order in which they will start; LIVE_SHOWN at most."""
    workspace, reader = resources.workspace(), resources.reader()
    records = []
    for status, most in (("RUNNING", LIVE_SHOWN), ("SCHEDULED", MOST_WAITING)):
        where = f"attributes.status = '{status}' and {runs.NO_SEARCH}"
        records += reader.runs(where=where, limit=most, order_by=OLDEST_FIRST)
    views = runs.views(workspace, records, resources.waiting_reasons)
    return runs.next_first([view for view in views if not view.ended])[:LIVE_SHOWN]


def _show_living(known: list[str]) -> None:
    living = _living() if known else []
    if [view.id for view in living] != known:
        st.rerun()
    if not living:
        return
    with st.container(border=True, key="living"):
        waiting = [view.id for view in living if view.state == "waiting" and view.job]
        for view in living:
            chip, name, bar, acts = st.columns([2, 5, 9, 4], vertical_alignment="center")
            with chip:
                html.draw(html.chip(view.state))
            with name:
                st.page_link(RUNS.script, label=view.title, query_params={"run": view.id})
            with bar:
                progress.draw(view)
            with acts, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
                if view.job:
                    _acts(view, view.job, waiting)


def _acts(view: RunView, job: JobFolder, waiting: list[str]) -> None:
    """Stop; of several that wait also who starts before whom."""
    if len(waiting) > 1 and view.id in waiting:
        for word, icon, way, end in MOVES:
            key = f"{way}-{view.id}"
            now = " ".join(waiting)
            if press.button(
                "", key, now, icon=f":material/{icon}:", type="tertiary", disabled=waiting[end] == view.id,
                help=f"{word} {view.title}",
            ):  # fmt: skip
                with suppress(ConfigError):  # it has begun meanwhile, and shows so
                    moving.move(resources.workspace(), job, way)
                state.clicks().settle(key)
                st.rerun()
    if st.button("Stop", key=f"stop-{view.id}", type="tertiary", disabled=view.state == "stopping"):
        queue.stop(job)
        st.rerun(scope="fragment")


def _table(text: str, word: str) -> None:
    number = runs.page_number(st.query_params.get("page", "1"))
    records, more = runs.page(resources.reader(), text=text, state=word, number=number, size=PER_PAGE)
    if not records and number > 1:
        st.query_params["page"] = "1"  # beyond the last one
        st.rerun()
    if not records:
        _nothing(bool(text or word))
        return
    workspace = resources.workspace()
    views = runs.views(workspace, records, resources.waiting_reasons)
    key = "runs-" + hashlib.sha256("".join(view.id for view in views).encode()).hexdigest()[:12]
    bar = st.container(horizontal=True, vertical_alignment="center", key="table-actions")
    chosen = run_table.draw(views, key)
    if chosen.opened:
        st.switch_page(RUNS.script, query_params={"run": chosen.opened})
    with bar:
        _actions(chosen.ticked)
    _pages(number, more)


def _actions(ticked: list[str]) -> None:
    if st.button(
        f"Compare {len(ticked)}" if ticked else "Compare",
        type="primary",
        disabled=not ticked,
        icon=":material/stacked_line_chart:",
    ):
        st.switch_page(COMPARE.script, query_params={"runs": ",".join(ticked)})
    html.draw(f'<span class="sb-dim">{escape("Tick runs to compare them; click a name to open it.")}</span>')


def _pages(number: int, more: bool) -> None:
    if number == 1 and not more:
        return
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center"):
        if st.button("Newer", disabled=number == 1, icon=":material/chevron_left:"):
            st.query_params["page"] = str(number - 1)
            st.rerun()
        html.draw(f'<span class="sb-dim">{(number - 1) * PER_PAGE + 1} – {number * PER_PAGE}</span>')
        if st.button("Older", disabled=not more, icon=":material/chevron_right:", icon_position="right"):
            st.query_params["page"] = str(number + 1)
            st.rerun()


def _nothing(filtered: bool) -> None:
    if filtered:
        html.empty("No run fits", "Clear the name or choose another state.")
    else:
        html.empty("No run yet", "Open a notebook and press Run on an experiment; its runs appear here and in MLflow.")
