"""A search cell of a notebook; redraws while its search is active."""

from functools import partial

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import SEARCH
from scalebook.app.search import data, widgets
from scalebook.app.search.data import BestTrial, SearchView
from scalebook.app.shared import dialogs, notes
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.widgets import turn_better
from scalebook.training.base import ConfigError
from scalebook.training.experiments import Experiment, classes, data_path_problems
from scalebook.training.experiments.search import read_search, search_problems
from scalebook.training.jobs import machines_of
from scalebook.training.notebook import SearchCell, Stored, edit
from scalebook.training.search import search_requests

EVERY_S = 1.0


def show_search(stored: Stored, index: int, cell: SearchCell) -> bool:
    """Draw the card; redraws every second while the search is active, and reruns the page when it ends.

    Returns whether the search is active.
    """
    search = _found(stored, cell)
    live = search is not None and search.live
    with st.container(border=True, key=f"cell-search-{cell.name}"):
        st.fragment(_card, run_every=EVERY_S if live else None)(stored, index, cell, search if not live else None, live)
    return live


def _found(stored: Stored, cell: SearchCell) -> SearchView | None:
    return data.of_cell(resources.workspace(), stored.path.name, cell.name)


def _card(stored: Stored, index: int, cell: SearchCell, search: SearchView | None, was_live: bool) -> None:
    if was_live:
        search = _found(stored, cell)
        if search is None or not search.live:
            st.rerun()  # the page stops looking every second
    description = resources.description()
    base = data.base_of(stored.notebook, cell.body, description)
    problems = [problem for problem in search_problems(cell.body, base, description) if problem.severity == "error"]
    if not problems and not was_live:
        machines = machines_of(resources.workspace())
        problems = search_requests.lacking_gpus(read_search(cell.body, base, description), machines)
    stale = data.what_changed(search, cell.body, base, description) if search is not None and not problems else ""
    searched = base or Experiment(classes.mapping(cell.body.get("config")), description)
    notices = [*problems, *data_path_problems(searched)]
    intent = widgets.search_card(cell.name, cell.body, search, stale, _best(search), notices, stored.stamp)
    if offer_direction(stored, cell, searched):
        st.rerun()
    if intent is None:
        return
    clicked = f"{intent}-{cell.name}"
    if intent == "delete":
        dialogs.confirm_delete(stored, index, "search", cell.name, "Its trials stay in MLflow and on the Search page.")
    if intent == "edit":
        state.clicks().mark_handled(clicked)
        st.switch_page(SEARCH.script, query_params={"notebook": stored.path.stem, "cell": cell.name})
    if intent == "open" and search is not None:
        state.clicks().mark_handled(clicked)
        st.switch_page(SEARCH.script, query_params={"search": search.id})
    state.clicks().mark_handled(clicked, done=_act(intent, stored, index, cell, search))
    st.rerun()


def offer_direction(stored: Stored, cell: SearchCell, searched: Experiment) -> bool:
    """Draw, for each objective whose direction is a guess, the guess and a button that turns it, which makes it a new
    search. Returns whether one was turned."""
    for name in data.without_goal(cell.body):
        key = f"better-{cell.name}-{name}"
        if goal := turn_better(name, data.better(name, searched, ()), key, stored.stamp):
            body = data.with_direction(cell.body, name, goal)
            done = write(stored, partial(edit.put_search, name=cell.name, body=body))
            state.clicks().mark_handled(key, done=done is not None)
            return done is not None
    return False


def _best(search: SearchView | None) -> BestTrial | None:
    """Value and point of the best trial so far, None without one."""
    if search is None or not search.done:
        return None
    try:
        spec = resources.search_spec(search.folder)
    except ConfigError:
        return None  # the search is of classes that are gone; its own page says so
    return data.best_of(resources.search_records(search.folder), spec, resources.reader())


def _act(intent: str, stored: Stored, index: int, cell: SearchCell, search: SearchView | None) -> bool:
    """Do what the button or the menu asks for; returns whether that worked."""
    if intent in ("run", "resume"):
        return _run(stored, cell)
    if intent == "stop" and search is not None:
        search_requests.stop(search.folder)
        state.show_message(f"Asked {cell.name} to stop.", ":material/stop:")
    else:
        notes.place(intent, stored, index)
    return True


def _run(stored: Stored, cell: SearchCell) -> bool:
    """Start the search, or continue the study of the same identity with the cell's present budget."""
    try:
        data.run(resources.workspace(), stored, cell, resources.description())
    except ConfigError as error:
        state.show_message(str(error), ":material/error:")
        return False
    state.show_message(f"Started {cell.name}.", ":material/play_arrow:")
    return True
