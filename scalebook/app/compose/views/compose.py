"""Composing an experiment: from a cell, a run or nothing to a saved cell and submitted runs."""

import copy
import shlex
from pathlib import Path
from typing import Any

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compose.components import config_result
from scalebook.app.compose.components.config_form import ConfigForm
from scalebook.app.navigation import NOTEBOOK, RUNS
from scalebook.app.runs.services import experiments
from scalebook.app.shared.services import drafts, form, notebooks
from scalebook.app.shared.services.notebooks import Choice
from scalebook.app.shared.views.writing import write
from scalebook.app.state import ComposeDraft
from scalebook.training.config.description import Description
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files import yaml
from scalebook.training.jobs.devices import inventory
from scalebook.training.notebook import edit, store
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.fences import NAME, NAME_REMEDY
from scalebook.training.notebook.store import Stored

Edited = tuple[dict[str, Any], str, int, list[Problem]]
"""Config, name, seeds, and the problems that no field shows."""


def load(choice: Choice, cell_name: str, description: Description) -> ComposeDraft:
    """The draft for this address: the one at work, or the one that was left, or the cell, or a new experiment."""
    draft = state.draft()
    source = (choice.name, cell_name)
    if draft.source == source and draft.base and not state.just_entered():
        return draft
    stored = store.read(choice.path)
    state.remember("composing", stored)
    left = drafts.load(resources.workspace(), *source)
    if left is not None:
        return state.reset_draft(source, left.config, left.name, left.repeats)
    cell = stored.notebook.experiment(cell_name) if cell_name else None
    if cell is not None:
        return state.reset_draft(source, copy.deepcopy(cell.config), cell.name, cell.repeats)
    return state.reset_draft(source, form.blank(description), "", 1)


def edit_as_form(draft: ComposeDraft, description: Description) -> Edited:
    """The form; problems are shown at their fields."""
    drawn = ConfigForm(description, copy.deepcopy(draft.base), draft.config, draft.version)
    typed, repeats = drawn.draw(draft.name, draft.repeats, _suggested(draft.config, description))
    name = typed or _suggested(drawn.config, description)
    homeless = drawn.show_problems([*name_problems(draft, name), *_problems(drawn.config, description)])
    return drawn.config, name, repeats, homeless


def edit_as_yaml(draft: ComposeDraft, description: Description) -> Edited:
    """The config as text. What is no YAML leaves the last good config in place and says where the mistake is."""
    text = st.text_area("Config", yaml.dump(draft.base), height=560, key=f"compose.{draft.version}.yaml")
    try:
        config = yaml.load(text)
    except ConfigError as error:
        return draft.config, _name(draft, description), draft.repeats, [error.problem]
    found = _problems(config, description)
    if not isinstance(config, dict):
        return draft.config, _name(draft, description), draft.repeats, found
    return config, _name(draft, description), draft.repeats, found


def _problems(config: Any, description: Description) -> list[Problem]:
    return validate(config, description, cores=len(inventory().cores))


def name_problems(draft: ComposeDraft, name: str) -> list[Problem]:
    """A cell's name is part of the file's syntax and of what its runs are found by."""
    if not NAME.fullmatch(name):
        return [Problem("name", f"cannot be {name!r}", NAME_REMEDY)]
    opened = _opened()
    if name != draft.source[1] and opened is not None and opened.notebook.experiment(name) is not None:
        return [Problem("name", f"{name} is taken in this notebook", "Choose another one.")]
    return []


def _opened() -> Stored | None:
    """The notebook as it was when the form was opened."""
    return state.recall("composing", None)


def _suggested(config: dict[str, Any], description: Description) -> str:
    """A name made from the choices that no cell has yet."""
    name, opened = form.suggested_name(config, description), _opened()
    return edit.unique_name(opened.notebook, name) if opened else name


def _name(draft: ComposeDraft, description: Description) -> str:
    return draft.name or _suggested(draft.config, description)


def keep(draft: ComposeDraft, config: dict[str, Any], name: str, repeats: int, description: Description) -> None:
    """Remember what the page says now, in the session and on disk. A suggested name goes on following the choices."""
    typed_name = "" if not draft.source[1] and name == _suggested(config, description) else name
    if (config, repeats, typed_name) == (draft.config, draft.repeats, draft.name):
        return
    draft.config, draft.repeats, draft.name = config, repeats, typed_name
    drafts.save(resources.workspace(), drafts.SavedDraft(*draft.source, typed_name, repeats, config))


def rebase(draft: ComposeDraft) -> None:
    """Start all widgets anew from what they said last, for the other way of editing."""
    state.reset_draft(draft.source, draft.config, draft.name, draft.repeats)


def start_over(draft: ComposeDraft) -> None:
    """Forget what was typed."""
    drafts.discard(resources.workspace(), *draft.source)
    state.reset_draft(("", ""), {}, "", 1)


def commands(choice: Choice, name: str) -> str:
    """How to run the saved cell, and the downloaded config, headless."""
    where = choice.path
    if where.is_relative_to(Path.cwd()):
        where = where.relative_to(Path.cwd())
    return f"scalebook notebook run {shlex.quote(str(where))} --cell {name}\nscalebook fit -c {name}.yaml"


def result(choice: Choice, config: dict[str, Any], name: str, repeats: int, homeless: list[Problem],
           description: Description) -> config_result.Intent | None:  # fmt: skip
    """The column beside the form; returns Run or Save."""
    found = [*homeless, *validate(config, description), *name_problems(state.draft(), name)]
    blocked = any(one.severity == "error" for one in found)
    intent = config_result.buttons(blocked, repeats)
    if blocked:
        st.caption(":red[Run waits until the problems marked in red are solved.]")
    load = workload(config, description)
    config_result.sizes(load)
    st.caption(config_result.meaning(load))
    config_result.problems(homeless)
    config_result.text(yaml.dump(config), commands(choice, name), f"{name}.yaml")
    return intent


def finish(intent: config_result.Intent, choice: Choice, draft: ComposeDraft, config: dict[str, Any], name: str,
           repeats: int, description: Description) -> None:  # fmt: skip
    """Save the cell; for Run, submit its runs too and go where they can be watched."""

    def put(notebook: Notebook) -> Notebook:
        return notebooks.put_experiment(notebook, name, config, repeats, replaces=draft.source[1])

    stored = write(_opened() or store.read(choice.path), put, said="" if intent == "run" else f"Saved {name}.")
    if stored is None:
        return
    drafts.discard(resources.workspace(), *draft.source)
    state.reset_draft(("", ""), {}, "", 1)
    if intent == "save":
        st.switch_page(NOTEBOOK.script, query_params={"notebook": choice.name})
    jobs = experiments.run(resources.workspace(), description, choice.path.name, name, config, repeats)
    st.switch_page(RUNS.script, query_params={"run": jobs[0].id})
