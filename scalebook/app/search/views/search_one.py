"""One search: what it is and how it stands, what can be done with it; below, what its trials tell."""

from typing import Any

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPOSE, NOTEBOOK, RUNS, SEARCH
from scalebook.app.search.components import search_head
from scalebook.app.search.components.search_head import Intent
from scalebook.app.search.services import search_setup, search_view, searches
from scalebook.app.search.services.searches import SearchView
from scalebook.app.search.views import search_cell, search_live
from scalebook.app.shared import drafts, links, notebooks
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.drafts import SavedDraft
from scalebook.app.shared.widgets import call_page, page_title
from scalebook.app.shared.words import summary
from scalebook.training.config.classes import mapping
from scalebook.training.config.search.point import resolve
from scalebook.training.errors import ConfigError
from scalebook.training.notebook.cells import Notebook
from scalebook.training.search import launch

EVERY_S = 1.0
ACTED = "search-acted"  # how often a button of the head was pressed


def show(search_id: str) -> None:
    """The whole view; says so where there is no such search."""
    search = searches.find(resources.workspace(), search_id)
    if search is None:
        page_title("No such search", f"{resources.workspace().root} has no search with the id {search_id}.")
        return
    call_page(search.name, "Search")
    _links(search)
    left, right = st.columns([2, 3], vertical_alignment="center")
    with left:
        st.fragment(_title, run_every=EVERY_S if search.live else None)(search)
    with right:
        _buttons(search)
    search_head.line(search, _experiment(search))
    search_head.trouble(search)
    _better(search)
    try:
        pressed = search_live.show(search.folder)
    except ConfigError as error:
        st.error(f"This search can no longer be read. {error}", icon=":material/error:")
        return
    if pressed is not None and pressed[0] == "use":
        _use(search, int(pressed[1]))
    elif pressed is not None:
        st.switch_page(RUNS.script, query_params={"run": str(pressed[1])})


def _links(search: SearchView) -> None:
    """Back to all searches, and to the notebook that it stands in."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(SEARCH.script, label="All searches", icon=":material/arrow_back:")
        choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
        if choice is not None:
            label = " › ".join(part for part in (choice.title, search.request.cell) if part)
            st.page_link(NOTEBOOK.script, label=label, icon=":material/menu_book:",
                         query_params=NOTEBOOK.cell(choice.name, search.request.cell or ""))  # fmt: skip


def _experiment(search: SearchView) -> str:
    """Model, data and how it is spread; the experiment's own name may have gone from the notebook."""
    config = search.body.get("config")
    words = summary(config, resources.description()) if isinstance(config, dict) else None
    return " · ".join(part for part in (words.model_and_data, words.strategy) if part) if words else ""


def _better(search: SearchView) -> None:
    """Where the search took a guess for what is better of an objective: in its notebook a click turns it."""
    config = mapping(search.body.get("config"))
    guessed = [name for name in search_setup.without_goal(search.body) if search_setup.better(name, config, ()).guessed]
    if not guessed:
        return
    choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
    stored = notebooks.load(choice)[0] if choice else None
    cell = stored.notebook.search(search.request.cell or "") if stored else None
    if choice and stored and cell and search_cell.turned(stored, cell, config):
        state.say(f"{cell.name} says so in the notebook. Run it there: it is another search now.")
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, cell.name))
    open_still = search_setup.without_goal(cell.body) if cell else []
    for name in guessed:
        if name not in open_still:
            direction = search_setup.better(name, config, ())
            remedy = f"If not, write objective: {{{name}: {direction.other}}} and search again."
            st.caption(f"{name}: {direction.words}. {remedy}")


def _title(known: SearchView) -> None:
    """Name and state. The page is drawn anew when the state has changed."""
    search = searches.view(known.folder)
    if search.state != known.state:
        st.rerun()
    search_head.title(search)


def _buttons(search: SearchView) -> None:
    address = resources.mlflow_address()
    url = links.trials(address, _experiment_id(search), search.id) if address else None
    version: int = state.recall(ACTED, 0)
    try:
        spec = resources.search_spec(search.folder)
        start = search_view.best(resources.search_records(search.folder), spec)
        intent, given = search_head.buttons(search, url, spec, start.point if start else {}, version)
    except ConfigError:
        intent, given = search_head.buttons(search, url, None, {}, version)
    if intent is None:
        return
    try:
        _act(intent, given, search)
    except ConfigError as error:
        state.clicks().settle(search_head.KEYS[intent], done=False)
        st.error(str(error), icon=":material/error:")
    else:
        state.clicks().settle(search_head.KEYS[intent])
        state.remember(ACTED, version + 1)
        st.rerun()


def _experiment_id(search: SearchView) -> str:
    """Of its trials."""
    if search.request.trials_experiment:
        return search.request.trials_experiment
    try:
        return resources.reader().run(search.id).experiment_id
    except KeyError:
        return "0"  # the store has been emptied; MLflow then says so itself


def _act(intent: Intent, given: search_head.Given, search: SearchView) -> None:
    description = resources.description()
    if intent == "stop":
        launch.stop(search.folder)
        state.say(f"Asked {search.name} to stop.", ":material/stop:")
    elif intent == "resume":
        launch.resume(search.folder, description)
        state.say(f"Resumed {search.name}.", ":material/resume:")
    elif intent == "add trials" and isinstance(given, int):
        launch.resume(search.folder, description, trials=max(search.trials, search.done) + given)
        state.say(f"Added {given} trials.", ":material/add:")
    elif intent == "add point" and isinstance(given, dict):
        _give(search, given)


def _give(search: SearchView, point: dict[str, Any]) -> None:
    """A study tries no point twice, so one that it knows is named instead. An ended search goes on for it."""
    known = next((record.number for record in resources.search_records(search.folder) if record.point == point), None)
    if known is not None:
        state.say(f"Trial {known} already has this point.", ":material/info:")
        return
    launch.give(search.folder, [point])
    if not search.live:
        launch.resume(search.folder, resources.description(), trials=max(search.trials, search.done + 1))
    state.say("The search tries this point next.", ":material/add_location:")


def _use(search: SearchView, number: int) -> None:
    """Write the trial's config as an experiment into the notebook, and go there; without a notebook, into the form."""
    record = next((record for record in resources.search_records(search.folder) if record.number == number), None)
    if record is None:
        return
    spec, description = resources.search_spec(search.folder), resources.description()
    choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
    if choice is None:
        _into_form(search, resolve(spec, record.point, description), spec.seeds)
        return
    name = ""

    def put(notebook: Notebook) -> Notebook:
        nonlocal name
        changed, name = searches.with_best(notebook, search, record, spec, description)
        return changed

    stored = write(notebooks.read(choice.path), put, said="")
    if stored is not None:
        state.say(f"Added {name} to the notebook: trial {number}, {search_view.words(record, spec)}.")
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, name))


def _into_form(search: SearchView, config: dict[str, object], seeds: int) -> None:
    """For a search that was started from a file: put the config into the form, as a new experiment of the first
    notebook."""
    choice = notebooks.pick(resources.workspace(), None)
    if choice is None:
        state.say("No notebook to write to: create one on the Notebook page first.", ":material/error:")
        st.rerun()
    else:
        drafts.save(resources.workspace(), SavedDraft(choice.name, "", f"{search.name}-best", seeds, config))
        st.switch_page(COMPOSE.script, query_params={"notebook": choice.name})
