"""The list of all runs: the active ones on top, live; then the table with filters and pages."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from html import escape
from typing import NoReturn
from urllib.parse import urlencode

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPARE, RUNS
from scalebook.app.runs import data, remarks, run_query, table, widgets
from scalebook.app.runs.data import RunView
from scalebook.app.runs.widgets import ListView
from scalebook.app.shared import dialogs, html
from scalebook.app.shared.frame import watch_changes
from scalebook.app.shared.widgets import page_title, press_button, show_broken
from scalebook.app.shared.words import plural
from scalebook.training.base import ConfigError
from scalebook.training.jobs import Direction, JobFolder, job_requests, move
from scalebook.training.tracking import RunRecord

ASKED = "runs-asked"  # by the run before
OPENED = "runs-opened"  # what the widgets are to say next, after a click on a group
PER_PAGE = 50
OLDEST_FIRST = ("attributes.start_time ASC",)
EVERY_S = 1.0
DEVICES_EVERY_S = 2.0
MOST_WAITING = 200  # are put in order
MOVES: tuple[tuple[str, str, Direction, int], ...] = (
    ("Start earlier:", "arrow_upward", "earlier", 0),
    ("Start later:", "arrow_downward", "later", -1),
)
LIVE_SHOWN = 8  # hundreds may be waiting; they are in the table
STOP_ALL = "stop-all-runs"


def show() -> None:
    """Draw heading, filters, active runs and table."""
    records = resources.all_runs()
    opened: dict[str, object] = state.pop(OPENED, {})
    for key, value in opened.items():
        state.set_widget(key, value)
    title, filters = st.columns([1, 4], vertical_alignment="bottom")
    with title:
        page_title("Runs")
    with filters, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"):
        list_view = widgets.filters(records, data.STATES, _asked(), resources.parameter_names(), resources.parameter)
        _views(list_view)
    wanted = run_query.parameter_columns(list_view.named())
    records = run_query.with_parameters(records, {name: resources.parameter(name) for name in wanted})
    show_broken(resources.broken_records())
    living = _living()
    _devices()
    st.fragment(_show_living, run_every=EVERY_S if living else None)([view.id for view in living[:LIVE_SHOWN]])
    passing = run_query.select_runs(records, list_view.query)
    if not passing:
        _nothing(list_view.query.narrows)
    elif list_view.group:
        _groups(passing, list_view)
    else:
        _table(passing, list_view)
    watch_changes()


def _asked() -> dict[str, list[str]]:
    """The query parameters, and the values of the widgets, which may name what no run has any more."""
    address = {key: st.query_params.get_all(key) for key in st.query_params}
    names = [*address.get("by", []), *(state.widget("by") or [])]
    for key in (*widgets.LISTS, *(f"{widgets.IS}{name}" for name in names)):
        address[key] = [*address.get(key, []), *(state.widget(key) or [])]
    address["sort"] = [*address.get("sort", []), *([state.widget("sort")] if state.widget("sort") else [])]
    return address


def _views(list_view: ListView) -> None:
    """Draw the menu of saved views: open, save, delete."""
    workspace = resources.workspace()
    with st.popover("Views", icon=":material/bookmark:"):
        try:
            saved = run_query.saved_views(workspace)
        except ConfigError as error:
            st.error(str(error))
            return
        for view in saved:
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                address = f"{RUNS.url()}?{urlencode(widgets.known_keys(view.parameters), doseq=True)}"
                html.draw(f'<table class="sb"><tr><td>{html.link(view.name, address).html}</td></tr></table>')
                if st.button("", key=f"delete view {view.name}", icon=":material/delete:", type="tertiary",
                             help=f"Delete the view {widgets.plain_label(view.name)}"):  # fmt: skip
                    run_query.delete_view(workspace, view.name)
                    st.rerun()
        name = st.text_input("Save this view as", key="view-name", max_chars=run_query.LONGEST_NAME)
        if st.button("Save", key="view-save", disabled=not (name or "").strip()):
            try:
                run_query.save_view(workspace, name or "", list_view.address())
            except ConfigError as error:
                st.error(str(error))
            else:
                state.show_message(f"Saved the view {widgets.plain_label(name or '')}.")
                st.rerun()
        st.caption("The address of this page includes the whole view. Copy the address to share the view.")


def _devices() -> None:
    """Draw which run holds which devices; read only while the section is open."""
    with (fold := st.expander("Devices", key="devices", icon=":material/memory:", on_change="rerun")):
        if fold.open:
            st.fragment(_show_devices, run_every=DEVICES_EVERY_S)()


def _show_devices() -> None:
    widgets.devices(data.device_state(resources.workspace()))


def _living() -> list[RunView]:
    """The running runs, then the waiting ones in the order in which they will start, MOST_WAITING at most."""
    workspace, reader = resources.workspace(), resources.reader()
    records = []
    for status, most in (("RUNNING", LIVE_SHOWN), ("SCHEDULED", MOST_WAITING)):
        where = f"attributes.status = '{status}' and {data.NO_SEARCH}"
        records += reader.runs(where=where, limit=most, order_by=OLDEST_FIRST)
    views = data.views(workspace, records, resources.waiting_reasons)
    return data.next_first([view for view in views if not view.ended])


def _show_living(ids: list[str]) -> None:
    living = _living() if ids else []
    if [view.id for view in living[:LIVE_SHOWN]] != ids:
        st.rerun()
    if not living:
        return
    with st.container(border=True, key="living"):
        waiting = [view.id for view in living if view.state == "waiting" and view.job]
        for view in living[:LIVE_SHOWN]:
            chip, name, bar, acts = st.columns([2, 5, 9, 4], vertical_alignment="center")
            with chip:
                html.draw(html.chip(view.state))
            with name:
                st.page_link(RUNS.script, label=view.title, query_params={"run": view.id})
            with bar:
                widgets.progress_bar(view)
            with acts, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
                if view.job:
                    _acts(view, view.job, waiting)
        if len(living) > 1:
            _all_living(living)


def _all_living(living: Sequence[RunView]) -> None:
    """Draw how many more runs wait, with a link to them, and the button that stops all."""
    more = len(living) - LIVE_SHOWN
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        if more > 0:
            count = plural(more, "more run")
            words = f"{count} waits" if more == 1 else f"{count} wait"
            at_least = "At least " if sum(view.state == "waiting" for view in living) >= MOST_WAITING else ""
            st.page_link(RUNS.script, label=f"{at_least}{words}. Show them", query_params={"state": "waiting"})
        else:
            html.draw("<span></span>")
        if press_button("Stop all", STOP_ALL, " ".join(view.id for view in living), type="tertiary",
                        icon=":material/stop:", help="Stops all waiting and training runs. Searches are not "
                                                     "stopped."):  # fmt: skip
            stopped = data.stop_all(resources.workspace())
            state.clicks().mark_handled(STOP_ALL)
            state.show_message(f"Asked {plural(stopped, 'run')} to stop.", ":material/stop:")
            st.rerun()


def _acts(view: RunView, job: JobFolder, waiting: list[str]) -> None:
    """Draw Stop and, if several runs wait, the buttons that move this one in the queue."""
    if len(waiting) > 1 and view.id in waiting:
        for word, icon, way, end in MOVES:
            key = f"{way}-{view.id}"
            now = " ".join(waiting)
            if press_button(
                "", key, now, icon=f":material/{icon}:", type="tertiary", disabled=waiting[end] == view.id,
                help=f"{word} {view.title}",
            ):  # fmt: skip
                with suppress(ConfigError):  # it has begun meanwhile, and shows so
                    move(resources.workspace(), job, way)
                state.clicks().mark_handled(key)
                st.rerun()
    if st.button("Stop", key=f"stop-{view.id}", type="tertiary", disabled=view.state == "stopping"):
        job_requests.stop(job, "in the app")
        st.rerun(scope="fragment")


def _groups(records: Sequence[RunRecord], list_view: ListView) -> None:
    """Draw a row for each group; a click on one shows its runs."""
    groups = run_query.groups(records, list_view.group, list_view.columns)
    with st.container(key="groups"):
        key = f"groups-{list_view.group}-{_digest(records)}"
        opened = table.group_table(groups, list_view.group, list_view.columns, key)
    if opened is not None:
        value = opened.value if list_view.group == "state" else [opened.value]
        state.remember(OPENED, {list_view.group: value, "group": widgets.NO_GROUP})
        st.rerun()
    html.draw(f'<span class="sb-dim">{escape(_counted(records, list_view))} Click a group to see its runs.</span>')


def _table(records: Sequence[RunRecord], list_view: ListView) -> None:
    number = _page_number(list_view)
    if (number - 1) * PER_PAGE >= len(records):
        number = 1  # beyond the last one
    workspace = resources.workspace()
    views = data.views(workspace, records[(number - 1) * PER_PAGE : number * PER_PAGE], resources.waiting_reasons)
    bar = st.container(horizontal=True, vertical_alignment="center", key="table-actions")
    ticked = table.run_table(views, f"runs-{_digest([view.record for view in views])}", list_view.columns)
    with bar:
        _actions([view for view in views if view.id in ticked], _counted(records, list_view))
        st.download_button("CSV", partial(_csv, records, list_view.columns), "runs.csv", "text/csv", key="runs-csv",
                           on_click="ignore", type="tertiary", icon=":material/download:",
                           help="All runs in this list, including those on other pages.")  # fmt: skip
    _pages(number, len(records))


def _csv(records: Sequence[RunRecord], columns: Sequence[str]) -> str:
    return table.as_csv(data.views(resources.workspace(), records, resources.waiting_reasons), columns)


def _page_number(list_view: ListView) -> int:
    """The page in the address; another query starts at page 1."""
    if state.recall(ASKED, list_view) != list_view:
        st.query_params.pop("page", None)
    state.remember(ASKED, list_view)
    return data.page_number(st.query_params.get("page", "1"))


def _digest(records: Sequence[RunRecord]) -> str:
    return hashlib.sha256("".join(record.id for record in records).encode()).hexdigest()[:12]


def _counted(records: Sequence[RunRecord], list_view: ListView) -> str:
    """`12 runs: notebook first-steps.`"""
    narrowed = list_view.filter_words()
    return f"{plural(len(records), 'run')}{f': {narrowed}' if narrowed else ''}."


def _actions(ticked: Sequence[RunView], counted: str) -> None:
    if st.button(
        f"Compare {len(ticked)}" if ticked else "Compare",
        type="primary",
        disabled=not ticked,
        icon=":material/stacked_line_chart:",
    ):
        st.switch_page(COMPARE.script, query_params={"runs": ",".join(view.id for view in ticked)})
    if ticked and st.button(f"Delete {len(ticked)}", key="delete-ticked", icon=":material/delete:"):
        ask_delete(ticked)
    if ticked and st.button("Tags", key="tags-ticked", icon=":material/sell:"):
        remarks.ask_tags(ticked)
    words = f"{counted} Tick runs (with the keyboard: Shift+Space) to compare, tag or delete them."
    html.draw(f'<span class="sb-dim">{escape(words)}</span>')


def _pages(number: int, count: int) -> None:
    if count <= PER_PAGE:
        return
    last = min(number * PER_PAGE, count)
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center"):
        if st.button("Back", disabled=number == 1, icon=":material/chevron_left:"):
            st.query_params["page"] = str(number - 1)
            st.rerun()
        html.draw(f'<span class="sb-dim">{(number - 1) * PER_PAGE + 1} – {last} of {count:,}</span>')
        if st.button("Next", disabled=last == count, icon=":material/chevron_right:", icon_position="right"):
            st.query_params["page"] = str(number + 1)
            st.rerun()


def _nothing(filtered: bool) -> None:
    if filtered:
        html.empty("No matching run", "Clear the name, the state or the filter.")
    else:
        html.empty("No run yet", "Open a notebook and press Run on an experiment; its runs appear here and in MLflow.")


DELETE = "delete-runs"
NAMED = 8


def ask_delete(views: Sequence[RunView]) -> NoReturn:
    """Open the dialog that deletes these runs."""
    dialogs.ask(f"Delete {plural(len(views), 'run')}?", partial(_delete_dialog, views))


def _delete_dialog(views: Sequence[RunView]) -> None:
    titles = [view.title for view in views]
    more = [f"and {len(titles) - NAMED} more"] if len(titles) > NAMED else []
    st.text("\n".join([*titles[:NAMED], *more]))
    st.markdown(
        "This removes the logs and checkpoints of these runs. MLflow keeps these runs in its list of deleted runs. "
        "The claim locks recorded with these runs are deleted too."
    )
    if any(not view.ended for view in views):
        st.caption("Queued and running runs are not deleted. Stop them first.")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="keep-runs"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, " ".join(view.id for view in views), type="primary"):
            ended = [view.id for view in views if view.ended]
            done, refused = data.delete_runs(resources.workspace(), resources.reader(), ended)
            state.clicks().mark_handled(DELETE)
            resources.look_at_all_runs_anew()
            icon = ":material/error:" if refused else ":material/check:"
            state.show_message(" ".join([f"Deleted {plural(done, 'run')}.", *refused]), icon)
            dialogs.close()
            st.rerun()
