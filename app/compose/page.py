"""Composing an experiment: edit a draft as a form or as YAML; beside it the resulting YAML and command."""

import copy
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compose import data, dry_run, widgets
from scalebook.app.compose.data import ClockSource
from scalebook.app.compose.widgets import ConfigForm
from scalebook.app.navigation import NOTEBOOK, RUNS
from scalebook.app.shared import drafts, form, html, notebooks
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.drafts import SavedDraft
from scalebook.app.shared.form import ConfigDraft
from scalebook.app.shared.frame import last_notebook, models_are_read, preload_charts
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import draft_line, page_title, show_problems
from scalebook.app.state import ComposeDraft
from scalebook.training.base import ConfigError, Problem
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Description, Experiment, config_hash, validate, validation_words
from scalebook.training.jobs import NodeDevices, about_gpus, gpu_problems, job_requests, machines_of, this_machine
from scalebook.training.notebook import Notebook, Stored, edit
from scalebook.training.notebook.claims import claim_tags

MODE = "compose-mode"  # Form or YAML: of the choice, and of what is shown
MODE_PARAMETER = "mode"
TURN_BACK = "compose-turn-back"
BACK = ":material/arrow_back:"


@dataclass(frozen=True)
class EditedConfig:
    """The current values of the form or the text."""

    config: dict[str, Any]
    name: str
    repeats: int
    refused: list[Problem] = field(default_factory=list)
    """Problems that the validation of the config cannot see: fields without a number, text that is not YAML."""
    homeless: list[Problem] = field(default_factory=list)
    """The problems that no field shows."""
    text: str = ""
    """The typed text, if it is not a config."""


def show(wanted: str | None, cell: str) -> None:
    """Draw the page for `cell` of the notebook `wanted`; for a new experiment if `cell` is ""."""
    choice = last_notebook(wanted)
    if choice is None:
        missing = f"No notebook called {wanted}" if wanted else "No notebook to write to"
        html.empty(missing, "Open or create a notebook first, then press New experiment there.")
        st.stop()

    description = _description(choice, cell)
    draft = load(choice, cell, description)
    if draft is None:
        show_missing(choice, cell)
        st.stop()

    back, mode_column = st.columns([3, 1], vertical_alignment="bottom")
    with back:
        _back(choice, cell)
    with mode_column, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        current_mode, mode_wanted = mode()
        if st.button("Start over", type="tertiary", help="Discards the draft and shows the notebook's version again."):
            start_over(draft)
            st.rerun()
    if draft.left_at is not None:
        draft_line(draft.left_at, "this experiment")
    if (opened := _opened()) is not None and opened.is_outdated:
        st.caption(
            "The experiment in the notebook has changed since you started this draft. When you save, you can choose "
            "which version to keep."
        )

    for problem in description.problems if description.trusted else ():  # else the page's head asks for trust
        st.warning(f"A module of scalebook.toml could not be imported. {problem}")
    for refused in description.refused:
        if refused.by_mistake:
            st.warning(f"One of your classes cannot be used. {refused}")
        elif refused.lacks_extra:
            st.caption(str(refused))

    left, right = st.columns([11, 8], gap="large")
    as_text = current_mode == "YAML"
    with left:
        edited = (edit_as_yaml if as_text else edit_as_form)(draft, description)
    keep_draft(draft, edited, description)
    if current_mode != mode_wanted:
        switch_mode(draft, mode_wanted)
    with right, st.container(key="beside"):
        intent = result(choice, edited, description, shows_yaml=not as_text)
    preload_charts()
    if intent in ("run", "save"):
        finish(intent, choice, draft, edited, description)


def _description(choice: NotebookChoice, cell: str) -> Description:
    """Models, data and strategies; while they are being read, a page that is not open yet has only its head."""
    head = st.container()
    if not _is_open(choice, cell) and not models_are_read():
        with head:
            _back(choice, cell)
        st.stop()
    return resources.description()


def _is_open(choice: NotebookChoice, cell: str) -> bool:
    """Whether this session's draft is the one that the page shows."""
    draft = state.draft()
    return draft.source == (choice.name, cell) and bool(draft.base) and not state.just_entered()


def _back(choice: NotebookChoice, cell: str) -> None:
    """Draw the way back, and the title."""
    st.page_link(NOTEBOOK.script, label=choice.label, icon=BACK, query_params=NOTEBOOK.cell(choice.name, cell))
    page_title(f"Edit {cell}" if cell else "New experiment", within=choice.title)


def load(choice: NotebookChoice, cell_name: str, description: Description) -> ComposeDraft | None:
    """The draft for this address, from the first that exists: this session's draft, the saved draft, the cell; a new
    experiment without a cell name.

    None if the notebook does not have the cell and no draft of it was saved.
    """
    source = (choice.name, cell_name)
    if _is_open(choice, cell_name):
        return state.draft()
    stored = notebooks.read(choice.path)
    state.remember("composing", stored)
    left = drafts.load(resources.workspace(), SavedDraft, *source)
    if left is not None:
        saved, left_at = left
        state.remember("composing", notebooks.as_begun(stored, cell_name, saved.before))
        if saved.text:
            state.remember(MODE, "YAML")
        return state.reset_draft(source, saved.config, saved.name, saved.repeats, saved.text, left_at)
    cell = stored.notebook.experiment(cell_name) if cell_name else None
    if cell is not None:
        return state.reset_draft(source, copy.deepcopy(cell.config), cell.name, cell.repeats)
    return None if cell_name else state.reset_draft(source, form.blank(description, _configs(stored)), "", 1)


def _configs(opened: Stored | None) -> list[dict[str, Any]]:
    return [cell.config for cell in opened.notebook.experiments()] if opened else []


def show_missing(choice: NotebookChoice, cell_name: str) -> None:
    """Say that the cell does not exist, instead of drawing the page."""
    st.page_link(NOTEBOOK.script, label=choice.label, icon=BACK, query_params={"notebook": choice.name})
    html.empty(f"{choice.title} has no experiment called {cell_name}", "It has been renamed or deleted.")


def edit_as_form(draft: ComposeDraft, description: Description) -> EditedConfig:
    """Draw the form, with each problem at its field."""
    drawn = ConfigForm(description, ConfigDraft(copy.deepcopy(draft.base)), ConfigDraft(draft.config), draft.version,
                       _gpus(),
                       partial(_clocks, draft, description), look=resources.look_at_model,
                       data_for=lambda model: form.data_for(model, _configs(_opened()), description))  # fmt: skip
    typed, repeats = drawn.draw(draft.name, draft.repeats, lambda edited: _suggested(edited, description))
    name = typed or _suggested(drawn.draft, description)
    own = {problem.key for problem in drawn.refused}
    problems = [problem for problem in _problems(Experiment(drawn.draft.config, description)) if problem.key not in own]
    homeless = drawn.show_problems([*name_problems(draft, name), *problems, *drawn.refused])
    return EditedConfig(drawn.draft.config, name, repeats, drawn.refused, homeless)


def _clocks(draft: ComposeDraft, description: Description) -> list[ClockSource]:
    """The sources of times in the draft's notebook and in all runs."""
    choice = notebooks.pick(resources.workspace(), draft.source[0])
    stored = notebooks.load(choice)[0] if choice else None
    if stored is None:
        return []
    return data.clock_sources(
        resources.workspace(), stored.notebook, ConfigDraft(draft.config), resources.all_runs(), description
    )


def edit_as_yaml(draft: ComposeDraft, description: Description) -> EditedConfig:
    """Draw the name, and the config as text. Text that is not a config is kept as typed, and its problem names the
    place. The name is drawn last, above the text: its suggestion follows that."""
    above = st.container()
    text = st.text_area("Config", draft.begun or yaml.dump(draft.base), height=560, key=f"compose.{draft.version}.yaml")
    config, homeless, unread = draft.config, list[Problem](), ""
    try:
        read = yaml.load(text)
    except ConfigError as error:
        refused = [error.problem.moved_to(yaml.place_of(error))]
    else:
        problems = _problems(Experiment.read(read, description))
        refused = [] if isinstance(read, dict) else problems[:1]
        if isinstance(read, dict):
            config, homeless = read, _with_lines(problems, text)
    if refused:
        homeless, unread = refused, text
    suggested = _suggested(ConfigDraft(config), description)
    with above:
        name = widgets.name_box(draft.name, suggested, f"compose.{draft.version}.name") or suggested
    return EditedConfig(config, name, draft.repeats, refused, [*name_problems(draft, name), *homeless], unread)


def _with_lines(problems: Sequence[Problem], text: str) -> list[Problem]:
    """The problems in the order of the text, each with its line; before them those whose key is missing there."""
    root = yaml.compose(text) if problems else None
    lines = [(yaml.line_of(root, problem.key), problem) for problem in problems]
    return [
        problem if line is None else problem.moved_to(f"line {line + 1}, {problem.key}")
        for line, problem in sorted(lines, key=lambda located: -1 if located[0] is None else located[0])
    ]


def _problems(experiment: Experiment) -> list[Problem]:
    lacking = [] if experiment.broken else gpu_problems(experiment, _machines())
    problems = validate(experiment, cores=len(this_machine().cores))
    refused = {problem.key for problem in lacking}  # of these keys the error counts, not that it would be slow
    return [*lacking, *(issue for issue in problems if issue.severity == "error" or issue.key not in refused)]


def _machines() -> list[NodeDevices]:
    return machines_of(resources.workspace())


def _gpus() -> str:
    """The GPUs of the machines and who needs how many; or why no GPU is used."""
    words, machines = about_gpus(_machines()), _machines()
    has = any(machine.gpus for machine in machines)
    return (
        f"{words} DDP needs one GPU for each worker, but the workers of a parameter server can share GPUs."
        if has
        else words
    )


def name_problems(draft: ComposeDraft, name: str) -> list[Problem]:
    opened = _opened()
    return notebooks.name_problems(opened.notebook if opened else None, name, draft.source[1])


def _opened() -> Stored | None:
    """The notebook as the form was opened on it."""
    return state.recall("composing", None)


def _suggested(draft: ConfigDraft, description: Description) -> str:
    """A name made from the choices, which no cell of the notebook has."""
    name, opened = draft.suggested_name(description), _opened()
    return edit.unique_name(opened.notebook, name) if opened else name


def keep_draft(draft: ComposeDraft, edited: EditedConfig, description: Description) -> None:
    """Store the current values in the session and on disk. A suggested name stays empty, so that it follows the
    choices."""
    suggested = not draft.source[1] and edited.name == _suggested(ConfigDraft(edited.config), description)
    now = (edited.config, edited.repeats, "" if suggested else edited.name, edited.text)
    if now == (draft.config, draft.repeats, draft.name, draft.text):
        return
    draft.config, draft.repeats, draft.name, draft.text = now
    opened = _opened()
    cell = notebooks.named_cell(opened.notebook, draft.source[1]) if opened else None
    before = cell.source if cell else ""
    saved = SavedDraft(*draft.source, draft.name, draft.repeats, draft.config, draft.text, before)
    drafts.save(resources.workspace(), saved)


def switch_mode(draft: ComposeDraft, mode: str) -> None:
    """Switch between form and YAML, with new widgets that start from the current values. Refused while the text is not
    a config."""
    if draft.text:
        state.show_message("The form cannot show this YAML. Fix it first, or press Start over.", ":material/error:")
        state.remember(TURN_BACK, "YAML")
    else:
        state.remember(MODE, mode)
        state.reset_draft(draft.source, draft.config, draft.name, draft.repeats, left_at=draft.left_at)
    st.rerun()


def mode() -> tuple[str, str]:
    """Draw the switch between form and YAML; returns the present mode and the chosen one. The address has the present
    one, so that a reload keeps it."""
    current = state.recall(MODE, "") or ("YAML" if st.query_params.get(MODE_PARAMETER) == "YAML" else "Form")
    if current == "YAML":
        st.query_params[MODE_PARAMETER] = current
    else:
        st.query_params.pop(MODE_PARAMETER, None)
    if back := state.pop(TURN_BACK, ""):
        state.set_widget(MODE, back)
    wanted = st.segmented_control("Edit as", ["Form", "YAML"], default=current, required=True, key=MODE,
                                  label_visibility="collapsed")  # fmt: skip
    return current, wanted


def start_over(draft: ComposeDraft) -> None:
    """Discard the draft."""
    drafts.discard(resources.workspace(), SavedDraft, *draft.source)
    state.reset_draft(("", ""), {}, "", 1)


def commands(choice: NotebookChoice, name: str) -> str:
    """The commands that run the saved cell and the downloaded config without a browser."""
    where = choice.path
    if where.is_relative_to(Path.cwd()):
        where = where.relative_to(Path.cwd())
    return f"scalebook notebook run {shlex.quote(str(where))} --cell {name}\nscalebook fit -c {name}.yaml"


def result(
    choice: NotebookChoice, edited: EditedConfig, description: Description, *, shows_yaml: bool
) -> widgets.Intent | None:
    """Draw the column beside the form; returns a click on Run or Save."""
    config, name, experiment = edited.config, edited.name, Experiment(edited.config, description)
    invalid = [] if edited.text else [*_problems(experiment), *name_problems(state.draft(), name)]
    problems = [*edited.refused, *invalid]
    wrong = [
        problem
        for problem in {problem.key: problem for problem in problems[::-1]}.values()
        if problem.severity == "error"
    ][::-1]
    crowd = experiment.crowd_words(len(this_machine().cores))
    in_boxes = {problem.message for problem in edited.homeless}
    intent = widgets.buttons(
        wrong, [problem for problem in wrong if problem.message not in in_boxes], edited.repeats,
        str(state.draft().version), crowd, offers_dry_run=experiment.strategy.nodes == 1,
    )  # fmt: skip
    if intent == "dry run":
        resources.start_dry_run(experiment)
        state.clicks().mark_handled(widgets.KEYS[intent], done=False)
    if not wrong:
        dry_run.show(experiment)
    show_problems(edited.homeless)
    if words := _renaming(edited, description):
        st.caption(words)
    if not edited.text:
        widgets.sizes(experiment)
        sentences = (widgets.batch_sentence(experiment), validation_words(experiment))
        st.caption(" ".join(line for line in sentences if line))
        widgets.text(yaml.dump(config), commands(choice, name), f"{name}.yaml", shows_yaml=shows_yaml)
    return intent


def _renaming(edited: EditedConfig, description: Description) -> str:
    """What a new name does to the experiment's results; "" if the name does not change."""
    before, opened = state.draft().source[1], _opened()
    cell = opened.notebook.experiment(before) if opened and before else None
    if cell is None or edited.name == before:
        return ""
    if config_hash(cell.experiment(description)) == config_hash(Experiment(edited.config, description)):
        return f"Renaming {before} keeps its results, and updates the comparisons and searches that refer to it."
    return (
        f"Renaming {before} updates the comparisons and searches that refer to it. Its config changes too, so its "
        "earlier "
        "results are outdated."
    )


def finish(
    intent: widgets.Intent, choice: NotebookChoice, draft: ComposeDraft, edited: EditedConfig, description: Description
) -> None:
    """Save the cell; for Run, also submit its runs and open the first one."""
    config, name, repeats = edited.config, edited.name, edited.repeats
    workspace, key = resources.workspace(), widgets.KEYS[intent]

    def put(notebook: Notebook) -> Notebook:
        return notebooks.put_experiment(notebook, name, config, repeats, replaces=draft.source[1])

    def leave() -> None:
        drafts.discard(workspace, SavedDraft, *draft.source)
        state.reset_draft(("", ""), {}, "", 1)
        st.switch_page(NOTEBOOK.script, query_params=NOTEBOOK.cell(choice.name, name))

    toast = "" if intent == "run" else f"Saved {name}."
    stored = write(_opened() or notebooks.read(choice.path), put, toast, decided=leave)
    if stored is None:
        state.clicks().mark_handled(key, done=False)
        return
    jobs = []
    if intent == "run":
        experiment = Experiment(config, description)
        jobs = job_requests.submit(
            workspace,
            experiment,
            seeds=experiment.seeds(max(1, repeats)),
            notebook=choice.path.name,
            cell=name,
            recorded=claim_tags(stored.notebook, name, description),
        )
    state.clicks().mark_handled(key)
    if jobs:
        drafts.discard(workspace, SavedDraft, *draft.source)
        state.reset_draft(("", ""), {}, "", 1)
        st.switch_page(RUNS.script, query_params={"run": jobs[0].id})
    leave()
