"""A search cell of a notebook, live while its search is."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import SEARCH
from scalebook.app.search.components import search_cell
from scalebook.app.search.services import searches
from scalebook.app.search.services.searches import Best, SearchView
from scalebook.app.shared.views import deleting, placing
from scalebook.training.config.search.definition import search_problems
from scalebook.training.errors import ConfigError
from scalebook.training.notebook.cells import SearchCell
from scalebook.training.notebook.store import Stored
from scalebook.training.search import launch

EVERY_S = 1.0


def show(stored: Stored, index: int, cell: SearchCell) -> bool:
    """The card; drawn every second while the search runs, and once more, with the page, when it has ended.

    Returns whether it goes on.
    """
    found = _found(stored, cell)
    live = found is not None and found.live
    with st.container(border=True, key=f"cell-search-{cell.name}"):
        st.fragment(_card, run_every=EVERY_S if live else None)(stored, index, cell, found if not live else None, live)
    return live


def _found(stored: Stored, cell: SearchCell) -> SearchView | None:
    return searches.of_cell(resources.workspace(), stored.path.name, cell.name)


def _card(stored: Stored, index: int, cell: SearchCell, found: SearchView | None, was_live: bool) -> None:
    if was_live:
        found = _found(stored, cell)
        if found is None or not found.live:
            st.rerun()  # the page stops looking every second
    description = resources.description()
    base = searches.base_of(stored.notebook, cell.body)
    problems = [problem for problem in search_problems(cell.body, base, description) if problem.severity == "error"]
    stale = found is not None and not problems and searches.stale(found, cell.body, base, description)
    intent = search_cell.draw(cell.name, cell.body, found, stale, _best(found), problems, stored.stamp)
    if intent is None:
        return
    clicked = f"{intent}-{cell.name}"
    if intent == "delete":
        deleting.confirm(stored, index, "search", cell.name, "Its trials stay in MLflow and on the Search page.")
    if intent == "edit":
        state.clicks().settle(clicked)
        st.switch_page(SEARCH.script, query_params={"notebook": stored.path.stem, "cell": cell.name})
    if intent == "open" and found is not None:
        state.clicks().settle(clicked)
        st.switch_page(SEARCH.script, query_params={"search": found.id})
    state.clicks().settle(clicked, done=_act(intent, stored, index, cell, found))
    st.rerun()


def _best(found: SearchView | None) -> Best | None:
    """Value and point of the best trial so far; None before there is one."""
    if found is None or not found.done:
        return None
    try:
        spec = resources.search_spec(found.folder)
    except ConfigError:
        return None  # the search is of classes that are gone; its own page says so
    return searches.best_of(resources.search_records(found.folder), spec)


def _act(intent: str, stored: Stored, index: int, cell: SearchCell, found: SearchView | None) -> bool:
    """Whether it has been done."""
    if intent in ("run", "resume"):
        return _run(stored, cell)
    if intent == "stop" and found is not None:
        launch.stop(found.folder)
        state.say(f"Asked {cell.name} to stop.", ":material/stop:")
    else:
        placing.act(intent, stored, index)
    return True


def _run(stored: Stored, cell: SearchCell) -> bool:
    """Start it, or go on with the study that has the same identity, with the budget that the cell says now."""
    try:
        searches.run(resources.workspace(), stored, cell, resources.description())
    except ConfigError as error:
        state.say(str(error), ":material/error:")
        return False
    state.say(f"Started {cell.name}.", ":material/play_arrow:")
    return True
