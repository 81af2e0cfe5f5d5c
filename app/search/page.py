"""The list of all searches of the workspace, and the page of one search."""

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPOSE, NOTEBOOK, RUNS, SEARCH
from scalebook.app.runs.data import delete_search
from scalebook.app.search import cells, data, live, trial_data, widgets
from scalebook.app.search.data import SearchView
from scalebook.app.search.widgets import Intent
from scalebook.app.shared import dialogs, drafts, html, links, notebooks
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.drafts import SavedDraft
from scalebook.app.shared.frame import last_notebook, watch_changes
from scalebook.app.shared.widgets import call_page, page_title, press_button, show_broken
from scalebook.app.shared.words import ago, summary
from scalebook.training.base import ConfigError
from scalebook.training.experiments import Experiment, classes
from scalebook.training.experiments.search import resolve
from scalebook.training.notebook import Notebook
from scalebook.training.search import search_requests

LIST_EVERY_S = 2.0
MOST = 100
HEAD = ("Search", "Notebook", "State", "Trials", "Progress", "Best", "Objective", "Started")


def show_list() -> None:
    """Draw all searches, the newest first; redraws while one is active, and when one is begun or resumed elsewhere."""
    title, buttons = st.columns([1, 1], vertical_alignment="bottom")
    with title:
        page_title("Searches")
    choice = last_notebook(None)
    with buttons, st.container(horizontal=True, horizontal_alignment="right"):
        ended = [view for view in data.views(resources.workspace(), MOST) if not view.live]
        if ended and st.button("Delete searches", key="delete-searches", icon=":material/delete:"):
            ask_delete(ended)
        if st.button("New search", type="primary", icon=":material/add:", disabled=choice is None) and choice:
            st.switch_page(SEARCH.script, query_params={"notebook": choice.name})
    show_broken(resources.broken_records())
    views = data.views(resources.workspace(), MOST)
    if not views:
        watch_changes()
        html.empty("No search yet", "Press New search, or Search on an experiment, to try many batch sizes and "
                                    "learning rates and see which of them work.")  # fmt: skip
        return
    live = any(view.live for view in views)
    st.fragment(_table, run_every=LIST_EVERY_S if live else None)(views if not live else None)
    if not live:
        watch_changes()


def _table(views: list[SearchView] | None) -> None:
    if views is None:
        views = data.views(resources.workspace(), MOST)
        if not any(view.live for view in views):
            st.rerun()
    titles = {choice.name: choice.label for choice in notebooks.choices(resources.workspace())}
    html.draw(html.table(HEAD, [_row(view, titles) for view in views], numeric=(3, 5)))
    if len(views) == MOST:
        st.caption(f"Only the newest {MOST} searches are listed. Older ones are in the notebooks and in MLflow.")


def _row(view: SearchView, titles: Mapping[str, str]) -> list[html.Cell]:
    """`titles`: those of all notebooks, by the stem of the file."""
    notebook = (view.request.notebook or "").removesuffix(".md")
    bar = f'<div class="sb-bar"><i class="sb-{escape(view.colour)}" style="width:{view.fraction:.1%}"></i></div>'
    return [
        html.link(view.name, SEARCH.url(search=view.id)),
        html.link(titles[notebook], NOTEBOOK.url(notebook=notebook))
        if notebook in titles
        else html.text(notebook or "–", "dim"),
        html.Cell(html.chip(view.colour, view.standing)),
        html.number(f"{view.done:,} / {view.trials:,}"),
        html.Cell(bar),
        html.number(view.best),
        html.text(view.objective, "dim"),
        html.text(ago(view.request.created), "dim"),
    ]


DELETE = "delete-chosen-searches"


def ask_delete(ended: Sequence[SearchView]) -> NoReturn:
    """Open the dialog that deletes ended searches, with or without the runs of their trials."""
    dialogs.ask("Delete searches?", partial(_delete_dialog, ended))


def _delete_dialog(ended: Sequence[SearchView]) -> None:
    words = {view.id: f"{view.name}, {ago(view.request.created)}, {view.done:,} trials" for view in ended}
    chosen = st.multiselect("Searches", list(words), key="searches-to-delete", format_func=lambda key: words[key],
                            placeholder="Choose ended searches")  # fmt: skip
    trials = st.toggle("Also delete all runs of these searches", key="trials-to-delete")
    st.markdown(
        "This removes the studies of these searches, so they cannot be resumed. MLflow keeps these searches in its "
        "list of deleted runs."
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="keep-searches"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, " ".join(words), type="primary", disabled=not chosen):
            refused = _delete_searches([view for view in ended if view.id in chosen], trials)
            state.clicks().mark_handled(DELETE, done=False)
            resources.look_at_all_runs_anew()
            state.show_message(" ".join(["Deleted.", *refused]), ":material/error:" if refused else ":material/check:")
            dialogs.close()
            st.rerun()


def _delete_searches(views: Sequence[SearchView], trials: bool) -> list[str]:
    """Delete the searches; returns why some could not be deleted."""
    refused = []
    for view in views:
        try:
            refused += delete_search(resources.workspace(), resources.reader(), view.folder, trials=trials)
        except ConfigError as error:
            refused.append(str(error))
    return refused


EVERY_S = 1.0
ACTED = "search-acted"  # how often a button of the head was pressed


def show_one(search_id: str) -> None:
    """Draw the page of a search: settings, state, buttons, charts of its trials; or say that it does not exist."""
    search = data.find(resources.workspace(), search_id)
    if search is None:
        page_title("No such search", f"{resources.workspace().root} has no search with the id {search_id}.")
        return
    call_page(search.name, "Search")
    _links(search)
    left, right = st.columns([2, 3], vertical_alignment="center")
    with left:
        st.fragment(_title, run_every=EVERY_S if search.live else LIST_EVERY_S)(search)  # it may be resumed elsewhere
    with right:
        _buttons(search)
    widgets.line(search, _experiment(search))
    widgets.trouble(search)
    _better(search)
    try:
        pressed = live.show(search.folder)
    except ConfigError as error:
        st.error(f"This search can no longer be read. {error}", icon=":material/error:")
        return
    if pressed is not None and pressed[0] == "use":
        _use(search, int(pressed[1]))
    elif pressed is not None:
        st.switch_page(RUNS.script, query_params={"run": str(pressed[1])})


def _links(search: SearchView) -> None:
    """Draw the links to all searches and to the search's notebook."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(SEARCH.script, label="All searches", icon=":material/arrow_back:")
        choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
        if choice is not None:
            label = " › ".join(part for part in (choice.title, search.request.cell) if part)
            st.page_link(NOTEBOOK.script, label=label, icon=":material/menu_book:",
                         query_params=NOTEBOOK.cell(choice.name, search.request.cell or ""))  # fmt: skip


def _experiment(search: SearchView) -> str:
    """Model, data and strategy of the searched experiment, which the notebook may not have any more."""
    words = summary(_base(search))
    return " · ".join(part for part in (words.model_and_data, words.strategy) if part)


def _base(search: SearchView) -> Experiment:
    """The searched experiment; an empty one where the search has none."""
    return Experiment(classes.mapping(search.body.get("config")), resources.description())


def _better(search: SearchView) -> None:
    """Draw the objectives whose direction the search has guessed; a click turns one in the notebook."""
    base = _base(search)
    guessed = [name for name in data.without_goal(search.body) if data.better(name, base, ()).guessed]
    if not guessed:
        return
    choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
    stored = notebooks.load(choice)[0] if choice else None
    cell = stored.notebook.search(search.request.cell or "") if stored else None
    if choice and stored and cell and cells.offer_direction(stored, cell, base):
        state.show_message(
            f"Changed {cell.name} in the notebook. It now counts as a new search, which you can start there."
        )
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, cell.name))
    open_still = data.without_goal(cell.body) if cell else []
    for name in guessed:
        if name not in open_still:
            direction = data.better(name, base, ())
            remedy = f"If the opposite is true, set objective: {{{name}: {direction.other}}} and search again."
            st.caption(f"{name}: {direction.words}. {remedy}")


def _title(drawn: SearchView) -> None:
    """Draw name and state; rerun the page when the state has changed."""
    search = data.view(drawn.folder)
    if search.state != drawn.state:
        st.rerun()
    widgets.title(search)


def _buttons(search: SearchView) -> None:
    address = resources.mlflow_address()
    url = links.trials(address, _experiment_id(search), search.id) if address else None
    version: int = state.recall(ACTED, 0)
    try:
        spec = resources.search_spec(search.folder)
        start = trial_data.best(resources.search_records(search.folder), spec)
        intent, value = widgets.buttons(search, url, spec, start.point if start else {}, version)
    except ConfigError:
        intent, value = widgets.buttons(search, url, None, {}, version)
    if intent is None:
        return
    try:
        _act(intent, value, search)
    except ConfigError as error:
        state.clicks().mark_handled(widgets.KEYS[intent], done=False)
        st.error(str(error), icon=":material/error:")
    else:
        state.clicks().mark_handled(widgets.KEYS[intent])
        state.remember(ACTED, version + 1)
        st.rerun()


def _experiment_id(search: SearchView) -> str:
    """The id of the MLflow experiment that holds the search's trials."""
    if search.request.trials_experiment:
        return search.request.trials_experiment
    try:
        return resources.reader().run(search.id).experiment_id
    except KeyError:
        return "0"  # the store has been emptied; MLflow then says so itself


def _act(intent: Intent, value: widgets.Given, search: SearchView) -> None:
    description = resources.description()
    if intent == "stop":
        search_requests.stop(search.folder)
        state.show_message(f"Asked {search.name} to stop.", ":material/stop:")
    elif intent == "resume":
        search_requests.resume(search.folder, description)
        state.show_message(f"Resumed {search.name}.", ":material/resume:")
    elif intent == "add trials" and isinstance(value, int):
        search_requests.resume(search.folder, description, trials=max(search.trials, search.done) + value)
        state.show_message(f"Added {value} trials.", ":material/add:")
    elif intent == "add point" and isinstance(value, dict):
        _give(search, value)


def _give(search: SearchView, point: dict[str, Any]) -> None:
    """Add a point to the search; an ended search continues for it. If a trial already has the point, name that trial:
    a study tries no point twice."""
    trial = next((record.number for record in resources.search_records(search.folder) if record.point == point), None)
    if trial is not None:
        state.show_message(f"Trial {trial} has already tried this point.", ":material/info:")
        return
    search_requests.give(search.folder, [point])
    if not search.live:
        search_requests.resume(search.folder, resources.description(), trials=max(search.trials, search.done + 1))
    state.show_message("The search tries this point next.", ":material/add_location:")


def _use(search: SearchView, number: int) -> None:
    """Add the trial's config to the notebook as an experiment, and go there; or into the form, without a notebook."""
    record = next((record for record in resources.search_records(search.folder) if record.number == number), None)
    if record is None:
        return
    spec = resources.search_spec(search.folder)
    choice = notebooks.pick(resources.workspace(), (search.request.notebook or "").removesuffix(".md"))
    if choice is None:
        _into_form(search, resolve(spec, record.point), spec.seeds)
        return
    name = ""

    def put(notebook: Notebook) -> Notebook:
        nonlocal name
        changed, name = data.with_best(notebook, search, record, spec)
        return changed

    stored = write(notebooks.read(choice.path), put, toast="")
    if stored is not None:
        state.show_message(f"Added {name} to the notebook: trial {number}, {trial_data.words(record, spec)}.")
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, name))


def _into_form(search: SearchView, trial: Experiment, seeds: int) -> None:
    """Put the config of a search from a file into the form, as a new experiment of the first notebook."""
    choice = notebooks.pick(resources.workspace(), None)
    if choice is None:
        state.show_message(
            "There is no notebook to write to. Create one on the Notebook page first.", ":material/error:"
        )
        st.rerun()
    else:
        drafts.save(
            resources.workspace(), SavedDraft(choice.name, "", f"{search.name}-best", seeds, dict(trial.written))
        )
        st.switch_page(COMPOSE.script, query_params={"notebook": choice.name})
