"""Composing an experiment: from a cell, a run or nothing to a saved cell and submitted runs."""

import copy
import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compose.components import config_result
from scalebook.app.compose.components.config_form import ConfigForm
from scalebook.app.compose.services import clock_sources
from scalebook.app.compose.services.clock_sources import ClockSource
from scalebook.app.navigation import NOTEBOOK, RUNS
from scalebook.app.shared.components import html
from scalebook.app.shared.components import problems as problem_list
from scalebook.app.shared.services import drafts, form, notebooks
from scalebook.app.shared.services.drafts import SavedDraft
from scalebook.app.shared.services.notebooks import NotebookChoice
from scalebook.app.shared.views.writing import write
from scalebook.app.state import ComposeDraft
from scalebook.training.claims import locks
from scalebook.training.config import validations
from scalebook.training.config.complete import seeds_from
from scalebook.training.config.crowding import crowd_words
from scalebook.training.config.description import Description
from scalebook.training.config.identity import config_hash
from scalebook.training.config.renamed import renewed
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files import yaml
from scalebook.training.jobs import queue
from scalebook.training.jobs.devices import Machine, this_machine
from scalebook.training.jobs.gpu_problems import about_gpus, gpu_problems, machines_of
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.store import Stored

MODE = "compose-mode"  # Form or YAML: of the choice, and of what is shown
TURN_BACK = "compose-turn-back"


@dataclass(frozen=True)
class Edited:
    """What the form, or the text, says now."""

    config: dict[str, Any]
    name: str
    repeats: int
    refused: list[Problem] = field(default_factory=list)
    """What no validation of the config knows: fields that hold no number, a text that is no YAML."""
    homeless: list[Problem] = field(default_factory=list)
    """The problems that no field shows."""
    text: str = ""
    """What was typed, where that is no config."""


def load(choice: NotebookChoice, cell_name: str, description: Description) -> ComposeDraft | None:
    """The draft for this address: the one at work, or the one that was left, or the cell, or a new experiment.

    None where the notebook has no such cell (any more) and nothing was left of it.
    """
    draft = state.draft()
    source = (choice.name, cell_name)
    if draft.source == source and draft.base and not state.just_entered():
        return draft
    stored = notebooks.read(choice.path)
    state.remember("composing", stored)
    left = drafts.load(resources.workspace(), SavedDraft, *source)
    if left is not None:
        saved, at = left
        if saved.text:
            state.remember(MODE, "YAML")
        return state.reset_draft(source, saved.config, saved.name, saved.repeats, saved.text, at)
    cell = stored.notebook.experiment(cell_name) if cell_name else None
    if cell is not None:
        return state.reset_draft(source, copy.deepcopy(cell.config), cell.name, cell.repeats)
    return None if cell_name else state.reset_draft(source, form.blank(description), "", 1)


def show_missing(choice: NotebookChoice, cell_name: str) -> None:
    """Instead of the page."""
    st.page_link(
        NOTEBOOK.script, label=choice.label, icon=":material/arrow_back:", query_params={"notebook": choice.name}
    )
    html.empty(f"{choice.title} has no experiment called {cell_name}", "It has been renamed or deleted.")


def edit_as_form(draft: ComposeDraft, description: Description) -> Edited:
    """The form; problems are shown at their fields."""
    drawn = ConfigForm(description, copy.deepcopy(draft.base), draft.config, draft.version, _gpus(),
                       partial(_clocks, draft, description))  # fmt: skip
    typed, repeats = drawn.draw(draft.name, draft.repeats, lambda config: _suggested(config, description))
    name = typed or _suggested(drawn.config, description)
    own = {problem.key for problem in drawn.refused}
    known = [problem for problem in _problems(drawn.config, description) if problem.key not in own]
    homeless = drawn.show_problems([*name_problems(draft, name), *known, *drawn.refused])
    return Edited(drawn.config, name, repeats, drawn.refused, homeless)


def _clocks(draft: ComposeDraft, description: Description) -> list[ClockSource]:
    """Of the notebook that the experiment is for, and of all runs."""
    choice = notebooks.pick(resources.workspace(), draft.source[0])
    stored = notebooks.load(choice)[0] if choice else None
    if stored is None:
        return []
    return clock_sources.sources(
        resources.workspace(), stored.notebook, draft.config, resources.all_runs(), description
    )


def edit_as_yaml(draft: ComposeDraft, description: Description) -> Edited:
    """The config as text. What is no config is kept as it was typed, and said where the mistake is."""
    text = st.text_area("Config", draft.begun or yaml.dump(draft.base), height=560, key=f"compose.{draft.version}.yaml")
    try:
        config = yaml.load(text)
    except ConfigError as error:
        wrong = Problem(yaml.place_of(error), error.problem.message, error.problem.remedy)
    else:
        config, older = renewed(config) if isinstance(config, dict) else (config, [])
        problems = [*older, *_problems(config, description)]
        if isinstance(config, dict):
            return Edited(config, _name(draft, description), draft.repeats, homeless=problems)
        wrong = problems[0]
    return Edited(draft.config, _name(draft, description), draft.repeats, [wrong], [wrong], text)


def _problems(config: Any, description: Description) -> list[Problem]:
    lacking = gpu_problems(workload(config, description), _machines()) if isinstance(config, dict) else []
    found = validate(config, description, cores=len(this_machine().cores))
    refused = {problem.key for problem in lacking}  # of these keys the error counts, not that it would be slow
    return [*lacking, *(one for one in found if one.severity == "error" or one.key not in refused)]


def _machines() -> list[Machine]:
    return machines_of(resources.workspace())


def _gpus() -> str:
    """Which there are, and who needs how many; why none is used, where one might be there."""
    said, machines = about_gpus(_machines()), _machines()
    has = any(machine.gpus for machine in machines)
    return f"{said} DDP needs one for each worker; a parameter server's workers share them." if has else said


def name_problems(draft: ComposeDraft, name: str) -> list[Problem]:
    opened = _opened()
    return notebooks.name_problems(opened.notebook if opened else None, name, draft.source[1])


def _opened() -> Stored | None:
    """The notebook as it was when the form was opened."""
    return state.recall("composing", None)


def _suggested(config: dict[str, Any], description: Description) -> str:
    """A name made from the choices that no cell has yet."""
    name, opened = form.suggested_name(config, description), _opened()
    return edit.unique_name(opened.notebook, name) if opened else name


def _name(draft: ComposeDraft, description: Description) -> str:
    return draft.name or _suggested(draft.config, description)


def keep(draft: ComposeDraft, edited: Edited, description: Description) -> None:
    """Remember what the page says now, in the session and on disk. A suggested name goes on following the choices."""
    suggested = not draft.source[1] and edited.name == _suggested(edited.config, description)
    now = (edited.config, edited.repeats, "" if suggested else edited.name, edited.text)
    if now == (draft.config, draft.repeats, draft.name, draft.text):
        return
    draft.config, draft.repeats, draft.name, draft.text = now
    saved = SavedDraft(*draft.source, draft.name, draft.repeats, draft.config, draft.text)
    drafts.save(resources.workspace(), saved)


def turn(draft: ComposeDraft, mode: str) -> None:
    """To the other way of editing: all widgets start anew from what they said last. A text that is none stays."""
    if draft.text:
        state.say("The form cannot show this text: fix it first, or press Start over.", ":material/error:")
        state.remember(TURN_BACK, "YAML")
    else:
        state.remember(MODE, mode)
        state.reset_draft(draft.source, draft.config, draft.name, draft.repeats, left_at=draft.left_at)
    st.rerun()


def mode() -> tuple[str, str]:
    """How it is edited, and how the person wants to edit it from now on."""
    shown = state.recall(MODE, "Form")
    if back := state.take(TURN_BACK, ""):
        state.set_widget(MODE, back)
    wanted = st.segmented_control("Edit as", ["Form", "YAML"], default=shown, required=True, key=MODE,
                                  label_visibility="collapsed")  # fmt: skip
    return shown, wanted


def start_over(draft: ComposeDraft) -> None:
    """Forget what was typed."""
    drafts.discard(resources.workspace(), SavedDraft, *draft.source)
    state.reset_draft(("", ""), {}, "", 1)


def commands(choice: NotebookChoice, name: str) -> str:
    """How to run the saved cell, and the downloaded config, headless."""
    where = choice.path
    if where.is_relative_to(Path.cwd()):
        where = where.relative_to(Path.cwd())
    return f"scalebook notebook run {shlex.quote(str(where))} --cell {name}\nscalebook fit -c {name}.yaml"


def result(choice: NotebookChoice, edited: Edited, description: Description) -> config_result.Intent | None:
    """The column beside the form; returns Run or Save."""
    config, name = edited.config, edited.name
    known = [] if edited.text else [*_problems(config, description), *name_problems(state.draft(), name)]
    problems = [*edited.refused, *known]
    wrong = [
        problem
        for problem in {problem.key: problem for problem in problems[::-1]}.values()
        if problem.severity == "error"
    ][::-1]
    load = workload(config, description)
    crowd = crowd_words(load, len(this_machine().cores))
    intent = config_result.buttons(wrong, edited.repeats, str(state.draft().version), crowd)
    if words := _renaming(edited, description):
        st.caption(words)
    config_result.sizes(load)
    st.caption(" ".join(said for said in (config_result.meaning(load), validations.words(config, description)) if said))
    problem_list.draw(edited.homeless)
    if not edited.text:
        config_result.text(yaml.dump(config), commands(choice, name), f"{name}.yaml")
    return intent


def _renaming(edited: Edited, description: Description) -> str:
    """What becomes of the results of an experiment that gets another name; "" where it keeps its own."""
    before, opened = state.draft().source[1], _opened()
    cell = opened.notebook.experiment(before) if opened and before else None
    if cell is None or edited.name == before:
        return ""
    if config_hash(cell.config, description) == config_hash(edited.config, description):
        return f"Renaming {before} keeps its results, and updates comparisons and searches that name it."
    return (
        f"Renaming {before} updates comparisons and searches that name it. Changing its config too detaches "
        "earlier results (they stay on the Runs page): save one of the two first."
    )


def finish(
    intent: config_result.Intent, choice: NotebookChoice, draft: ComposeDraft, edited: Edited, description: Description
) -> None:
    """Save the cell; for Run, submit its runs too and go where they can be watched."""
    config, name, repeats = edited.config, edited.name, edited.repeats
    workspace, key = resources.workspace(), config_result.KEYS[intent]

    def put(notebook: Notebook) -> Notebook:
        return notebooks.put_experiment(notebook, name, config, repeats, replaces=draft.source[1])

    stored = write(_opened() or notebooks.read(choice.path), put, said="" if intent == "run" else f"Saved {name}.")
    if stored is None:
        state.clicks().settle(key, done=False)
        return
    jobs = []
    if intent == "run":
        seeds = seeds_from(config, max(1, repeats))
        jobs = queue.submit(
            workspace,
            config,
            seeds=seeds,
            description=description,
            notebook=choice.path.name,
            cell=name,
            recorded=locks.tags(stored.notebook, name, description),
        )
    state.clicks().settle(key)
    drafts.discard(workspace, SavedDraft, *draft.source)
    state.reset_draft(("", ""), {}, "", 1)
    if jobs:
        st.switch_page(RUNS.script, query_params={"run": jobs[0].id})
    st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, name))
