"""Setting up a search: from an experiment or a search cell to a saved cell and a running search."""

import copy
import shlex
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import NOTEBOOK, SEARCH
from scalebook.app.search import data as searches
from scalebook.app.search.data import Body
from scalebook.app.search_setup import data, widgets
from scalebook.app.search_setup.data import SavedSetup, search_fields
from scalebook.app.shared import drafts, html, notebooks
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.frame import preload_charts
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.what_it_logs import what_it_logs
from scalebook.app.shared.widgets import draft_line, page_title, show_problems
from scalebook.app.state import SearchDraft
from scalebook.training.base import ConfigError, Problem
from scalebook.training.experiments import Description, Experiment, classes
from scalebook.training.experiments.search import SearchSpec, cost, read_search, search_problems
from scalebook.training.jobs import NodeDevices, machines_of, this_machine
from scalebook.training.notebook import Notebook, Stored
from scalebook.training.notebook.claims import claim_tags
from scalebook.training.search import search_requests
from scalebook.training.tracking import RunRecord

OPENED = "searching"  # the notebook as it was when the form was opened
LEFT, RIGHT = 11, 8


def show(notebook: str, cell: str, experiment: str) -> None:
    """Draw the page; without an experiment, say what to do first."""
    workspace = resources.workspace()
    choice = notebooks.pick(workspace, notebook)
    if choice is None:
        html.empty(f"No notebook called {notebook}", "Open one and press Search on an experiment.")
        return
    description = resources.description()
    draft = _load(choice, cell, experiment, description)
    if draft is None:
        missing = f"no search called {cell}" if cell else f"no experiment called {experiment}"
        html.empty(f"{choice.title} has {missing}", "It has been renamed or deleted.")
        st.page_link(
            NOTEBOOK.script, label=choice.label, icon=":material/arrow_back:", query_params={"notebook": choice.name}
        )
        return
    if not _opened().notebook.experiments() and not draft.base.get("config"):
        html.empty("No experiment to search over", f"Open {choice.title} and press New experiment first.")
        return
    step = _head(choice, draft)
    left, right = st.columns([LEFT, RIGHT], gap="large")
    with left:
        _form(choice, draft, description)
    if step != draft.step:  # only now: what was typed last is in the draft
        _go(draft, step)
    with right, st.container(key="beside"):
        intent = _plan(choice, draft, description)
    preload_charts()
    if intent:
        _finish(intent, choice, draft, description)


def _opened() -> Stored:
    opened: Stored | None = state.recall(OPENED, None)
    assert opened is not None, "the draft and the opened notebook are stored together"
    return opened


def _load(choice: NotebookChoice, cell: str, experiment: str, description: Description) -> SearchDraft | None:
    """The draft for this address, from the first that exists: this session's draft, the saved draft, the cell; else a
    new search.

    None if the address names a cell that the notebook does not have, and no draft of it was saved.
    """
    draft = state.search_draft()
    source = (choice.name, cell, experiment)
    if draft.source == source and draft.base and not state.just_entered():
        return draft
    stored = notebooks.read(choice.path)
    state.remember(OPENED, stored)
    left = drafts.load(resources.workspace(), SavedSetup, choice.name, data.address(*source[1:]))
    if left is not None:
        saved, left_at = left
        state.remember(OPENED, notebooks.as_begun(stored, cell, saved.before))
        return state.reset_search_draft(source, saved.body, saved.name, saved.step, left_at)
    if cell:
        search_cell = stored.notebook.search(cell)
        return (
            state.reset_search_draft(source, copy.deepcopy(search_cell.body), search_cell.name)
            if search_cell is not None
            else None
        )
    if experiment and stored.notebook.experiment(experiment) is None:
        return None
    first = next((experiment.name for experiment in stored.notebook.experiments()), "")
    runs = data.recent(resources.reader(), choice.path.name, experiment or first)
    body = data.new_body(experiment or first, _base(stored.notebook, experiment or first, description), runs)
    return state.reset_search_draft(source, body, "")


def _base(notebook: Notebook, name: str, description: Description) -> Experiment:
    cell = notebook.experiment(name)
    return cell.experiment(description) if cell else Experiment({}, description)


def _searched(body: Body, description: Description) -> Experiment:
    """The experiment that is searched over, of the cell's own config or by name; an empty one where there is none."""
    config = body.get("config")
    base = None if isinstance(config, dict) else searches.base_of(_opened().notebook, body, description)
    return base or Experiment(classes.mapping(config), description)


def _head(choice: NotebookChoice, draft: SearchDraft) -> int:
    """Draw the head of the page; returns the chosen step."""
    back, right = st.columns([2, 3], vertical_alignment="bottom")
    cell = draft.source[1]
    with back:
        back_to = NOTEBOOK.cell(choice.name, cell or draft.source[2])
        st.page_link(NOTEBOOK.script, label=choice.label, icon=":material/arrow_back:", query_params=back_to)
        page_title(f"Edit {cell}" if cell else "New search", within=choice.title)
    with right, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        step = widgets.steps(draft.step, f"search.{draft.version}")
        if st.button("Start over", type="tertiary", help="Discards the draft and shows the notebook's version again."):
            _start_over(draft)
    if draft.left_at is not None:
        draft_line(draft.left_at, "this search")
    return step


def _discard(draft: SearchDraft) -> None:
    notebook, *cell_and_experiment = draft.source
    drafts.discard(resources.workspace(), SavedSetup, notebook, data.address(*cell_and_experiment))


def _start_over(draft: SearchDraft) -> None:
    _discard(draft)
    state.reset_search_draft(("", "", ""), {}, "")
    st.rerun()


def _go(draft: SearchDraft, step: int) -> None:
    """Go to the other step of the form; the body holds the last values of its widgets."""
    state.reset_search_draft(draft.source, draft.body, draft.name, step, draft.left_at)
    _save(state.search_draft())
    st.rerun()


def _form(choice: NotebookChoice, draft: SearchDraft, description: Description) -> None:
    """Draw the present step, and store its body and name in the draft."""
    key = f"search.{draft.version}"
    if draft.step == 2:
        searched = _searched(draft.body, description)
        what_it_logs({str(draft.body.get("experiment", "")): searched}, _runs(choice, draft.body), key)
        offered, spec = _offered(choice, draft.body, searched), _spec(draft.body, description)
        said_ = widgets.second_step(copy.deepcopy(draft.base), offered, key, spec is not None and spec.is_simulated)
        body, name = data.tidy_body(said_), draft.name
    else:
        name = _name(draft, key)
        _experiment(choice, draft, key)
        fields = search_fields(_searched(draft.base, description))
        first = widgets.first_step(copy.deepcopy(draft.base), fields, key)
        body = data.tidy_body(first.body)
        if first.preset is not None:
            _begin_with(first.preset, draft, body, description, _runs(choice, body))
        elif first.changed:
            _anew(draft, body, name)
    _keep(draft, body, name)
    if (step := widgets.step_button(draft.step, key)) != draft.step:
        _go(draft, step)


def _offered(choice: NotebookChoice, body: Body, searched: Experiment) -> widgets.OfferedMetrics:
    """The metrics that the experiment offers, and their directions."""
    runs = _runs(choice, body)
    metrics = data.metrics(searched, runs)
    return widgets.OfferedMetrics(metrics, lambda name: searches.better(name, searched, runs), searched)


def _runs(choice: NotebookChoice, body: Body) -> list[RunRecord]:
    return data.recent(resources.reader(), choice.path.name, str(body.get("experiment", "")))


def _name(draft: SearchDraft, key: str) -> str:
    suggested = data.suggested_name(draft.body, _opened().notebook)
    text = st.text_input("Name", draft.name, key=f"{key}.name", placeholder=suggested, disabled=bool(draft.source[1]),
                         help="Name of the cell and of the search. If empty, Scalebook generates a name from the "
                              "choices below.")  # fmt: skip
    return text.strip()


def _experiment(choice: NotebookChoice, draft: SearchDraft, key: str) -> None:
    """Draw the choice of notebook and experiment; another choice leads to another address."""
    titles = {choice.name: choice.label for choice in notebooks.choices(resources.workspace())}
    cells = [experiment.name for experiment in _opened().notebook.experiments()]
    before = str(draft.base.get("experiment", ""))
    notebook, cell = widgets.experiment(titles, choice.name, cells, before, key, fixed=bool(draft.source[1]))
    if notebook != choice.name:
        st.query_params.from_dict({"notebook": notebook})
        st.rerun()
    if cell and cell != before and not draft.source[1]:
        source = (choice.name, "", cell)
        if draft.body.get("space"):
            _save(state.reset_search_draft(source, {**draft.body, "experiment": cell}, draft.name))
        st.query_params.from_dict({"notebook": notebook, "experiment": cell})
        st.rerun()


def _begin_with(
    preset: str, draft: SearchDraft, body: Body, description: Description, runs: Sequence[RunRecord]
) -> None:
    """Replace the body by the preset's; OWN only removes the preset's name."""
    if preset == widgets.OWN:
        body.pop("preset", None)
    else:
        try:
            body = data.with_preset(body, preset, _searched(body, description), this_machine(), runs)
        except ConfigError as error:
            st.error(str(error), icon=":material/error:")
            return
    _anew(draft, body, draft.name)


def _anew(draft: SearchDraft, body: Body, name: str) -> None:
    """Redraw the form with new widgets, which start from `body`."""
    _save(state.reset_search_draft(draft.source, body, name, draft.step))
    st.rerun()


def _keep(draft: SearchDraft, body: Body, name: str) -> None:
    """Store the present values in the session and on disk."""
    if (body, name) != (draft.body, draft.name):
        draft.body, draft.name = copy.deepcopy(body), name
        _save(draft)


def _save(draft: SearchDraft) -> None:
    cell = notebooks.named_cell(_opened().notebook, draft.source[1])
    before = cell.source if cell else ""
    drafts.save(resources.workspace(), SavedSetup(*draft.source, draft.name, draft.step, draft.body, before))


def _plan(choice: NotebookChoice, draft: SearchDraft, description: Description) -> widgets.Intent | None:
    """Draw the column beside the form; returns a click on Start or Save."""
    body, opened = draft.body, _opened()
    name = draft.name or data.suggested_name(body, opened.notebook)
    machine, base = this_machine(), searches.base_of(_opened().notebook, body, description)
    if not body.get("space"):
        widgets.plan_buttons(blocked=True, stamp=str(draft.version))
        st.caption("Choose the search space to see what the search would do.")
        return None
    problems = [*notebooks.name_problems(opened.notebook, name, draft.source[1]),
             *search_problems(body, base, description, len(machine.cores))]  # fmt: skip
    spec = _spec(body, description)
    if spec is not None:
        problems += search_requests.lacking_gpus(spec, machines_of(resources.workspace()))
    blocked = any(problem.severity == "error" for problem in problems)
    intent = widgets.plan_buttons(blocked, str(draft.version))
    if spec is not None:
        _about(choice, body, spec, machine)
    show_problems(problems)
    if spec is not None:
        widgets.plan_examples(data.examples(spec))
    widgets.plan_text(*_texts(choice, name, body, problems))
    return intent


def _spec(body: Body, description: Description) -> SearchSpec | None:
    base = searches.base_of(_opened().notebook, body, description)
    try:
        return read_search(body, base, description)
    except ConfigError:
        return None  # the problems say why


def _about(choice: NotebookChoice, body: Body, spec: SearchSpec, machine: NodeDevices) -> None:
    """Draw how many runs and minutes the search takes, estimated from the experiment's runs."""
    took = data.seconds_a_run(
        resources.workspace(), resources.reader(), choice.path.name, str(body.get("experiment", ""))
    )
    cost_ = cost(spec, len(machine.cores), took, len(machine.gpus))
    widgets.plan_about(data.about(cost_), data.source_of(cost_, took, spec))


def _texts(choice: NotebookChoice, name: str, body: Body, problems: list[Problem]) -> tuple[str, str]:
    """The cell's text as in the notebook, and the command that runs it."""
    where = choice.path.relative_to(Path.cwd()) if choice.path.is_relative_to(Path.cwd()) else choice.path
    command = f"scalebook search run {shlex.quote(str(where))} --cell {name}"
    return data.cell_text(_opened().notebook, name, body), command


def _finish(intent: widgets.Intent, choice: NotebookChoice, draft: SearchDraft, description: Description) -> None:
    """Write the cell; for Start, also start the search and open its page."""
    body = draft.body
    name = draft.name or data.suggested_name(body, _opened().notebook)

    def put(notebook: Notebook) -> Notebook:
        return data.put(notebook, name, body)

    def leave() -> None:
        _discard(draft)
        state.reset_search_draft(("", "", ""), {}, "")
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, name))

    key = widgets.KEYS[intent]
    stored = write(_opened(), put, toast="" if intent == "start" else f"Saved {name}.", decided=leave)
    if stored is None:
        state.clicks().mark_handled(key, done=False)
        return  # the page says why
    state.remember(OPENED, stored)
    folder = None
    if intent == "start":
        base = searches.base_of(stored.notebook, body, description)
        try:
            folder = search_requests.start(
                resources.workspace(), body, base, name=name, notebook=choice.path.name, cell=name,
                description=description, recorded=claim_tags(stored.notebook, name, description),
            )  # fmt: skip
        except ConfigError as error:
            state.clicks().mark_handled(key, done=False)
            st.error(str(error), icon=":material/error:")
            return
    state.clicks().mark_handled(key)
    if folder is None:
        leave()
        return
    _discard(draft)
    state.reset_search_draft(("", "", ""), {}, "")
    st.switch_page(SEARCH.script, query_params={"search": folder.id})
