"""The notebook as a whole: its history, a new notebook, the user's own model; rename, duplicate, delete, restore."""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from html import escape
from itertools import groupby, pairwise
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.notebook import data
from scalebook.app.notebook.widgets import UNDO
from scalebook.app.shared import dialogs, html, notebooks, notes
from scalebook.app.shared.dialogs import attempt, in_conflict
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import ago
from scalebook.training.base import SETTINGS, ConfigError, trust
from scalebook.training.experiments import FoundModule, found, name_modules, write_template
from scalebook.training.notebook import (
    MOST_STATES,
    PastState,
    Stored,
    changes,
    lifecycle,
    past_states,
    previous_state,
    store,
)

MOST_TOLD = 3
"""Changes that the list of states names for each state."""


def undo_from(stored: Stored | None) -> str | None:
    """The stamp of the file that Undo would start from; None without an earlier state, and while a note is edited."""
    if stored is None or notes.opened_here(stored.path) is not None:
        return None
    return stored.stamp if previous_state(stored.path, stored.notebook.text.encode("utf-8")) is not None else None


def undo(stored: Stored) -> None:
    """Restore the state before the present one."""
    back = previous_state(stored.path, stored.notebook.text.encode("utf-8"))
    if back is not None:
        dialogs.restore(stored, back, f"Undone. The notebook is back in its state from {ago(back.changed_s)}.")
    state.clicks().mark_handled(UNDO, done=False)
    state.clicks().start_over()
    st.rerun()


def ask_history(stored: Stored) -> NoReturn:
    """Open the dialog with all earlier states, to view or restore."""
    dialogs.ask("History", partial(_history_dialog, stored), "large")


def _history_dialog(stored: Stored) -> None:
    """Draw the earlier states, newest first, and the change that restoring the chosen one would make."""
    now = stored.notebook.text
    every = past_states(stored.path)
    before = dict(pairwise(every))
    shown_states = [state for state in every if state.back is None]
    shown_states = [kept_state for kept_state in shown_states if kept_state.content() != now.encode("utf-8")]
    if not shown_states:
        st.markdown("No earlier states yet. Each save adds one.")
        return
    chosen = st.selectbox(
        "State", shown_states, format_func=lambda past: _state_words(past, before.get(past)), key="earlier-state"
    )
    text = chosen.content().decode("utf-8", "replace")
    st.caption("The changes that restoring this state would make to the file. The current state stays in this list.")
    st.code(notebooks.difference(text, now, f"state {chosen.number}"), language="diff", height=320)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if press_button("Restore this state", "earlier-return", type="primary"):
            dialogs.restore(stored, chosen, f"Restored the state from {ago(chosen.changed_s)}.")
            state.clicks().mark_handled("earlier-return")
            state.clicks().start_over()
            dialogs.close()
            st.rerun()


def _state_words(state_: PastState, before: PastState | None) -> str:
    """The state's number, its time, and what it changed."""
    what = _state_changes(state_, before) if before else "the oldest one"
    return f"{state_.number}, {ago(state_.changed_s)}: {what}"


@lru_cache(maxsize=4 * MOST_STATES)
def _state_changes(state_: PastState, before: PastState) -> str:
    """What a state changed. Cached: a stored state never changes."""
    texts = (past.content().decode("utf-8", "replace") for past in (before, state_))
    sentences = changes(*texts)
    more = f", {len(sentences) - MOST_TOLD} more" if len(sentences) > MOST_TOLD else ""
    return "; ".join(sentences[:MOST_TOLD]) + more


RENAME, DELETE, BRING_BACK = "rename-notebook", "delete-notebook", "bring-back"


def manage(intent: str, stored: Stored) -> None:
    """Rename, duplicate or delete the notebook, as chosen in its menu; other intents do nothing."""
    if intent == "rename":
        dialogs.ask("Rename this notebook", partial(_rename_dialog, stored))
    elif intent == "duplicate":
        copy = attempt(lambda: lifecycle.duplicate(stored), "This is the copy. The experiments in it have no runs yet.")
        if copy is not None:
            st.query_params["notebook"] = copy.path.stem
        st.rerun()
    elif intent == "delete":
        dialogs.ask("Delete this notebook?", partial(_delete_dialog, stored))


def _rename_dialog(stored: Stored) -> None:
    title = st.text_input("Title", stored.notebook.title, key="rename-title", max_chars=notebooks.LONGEST_TITLE)
    stem = st.text_input("File name, without .md", stored.path.stem, key="rename-file")
    st.caption("The runs, searches, drafts and history move with the notebook.")
    now = f"{stored.path.name} {stored.stamp}"
    if not press_button("Rename", RENAME, now, type="primary", disabled=not (title.strip() and stem.strip())):
        return
    with st.spinner("Moving its runs …"):
        changed = attempt(lambda: _renamed(stored, title.strip(), stem.strip()), "Renamed.")
    state.clicks().mark_handled(RENAME, done=changed is not None)
    if changed is not None:
        dialogs.close()
        st.switch_page(NOTEBOOK.script, query_params={"notebook": changed.path.stem})
    if in_conflict():
        dialogs.close()
    st.rerun()


def _renamed(stored: Stored, title: str, stem: str) -> Stored:
    called = stored.notebook.title
    lifecycle.retitled(stored.notebook, title)  # refuses a title before anything is done
    if stem != stored.path.stem:
        stored = data.rename(resources.workspace(), resources.reader(), stored, stem)
    return stored if title == called else store.save(stored, lifecycle.retitled(stored.notebook, title))


def _delete_dialog(stored: Stored) -> None:
    st.markdown(
        f"This removes `{stored.path.name}`. Its runs are kept in MLflow and on the Runs page. To restore the "
        "notebook, use **Deleted notebooks** in any notebook's menu."
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="notebook-stays"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, stored.stamp, type="primary"):
            attempt(lambda: _removed(stored), f"Deleted {stored.path.name}.")
            state.clicks().mark_handled(DELETE, done=False)
            dialogs.close()
            st.rerun()


def _removed(stored: Stored) -> Stored:
    lifecycle.delete(stored)
    return stored


def ask_deleted() -> NoReturn:
    """Open the list of deleted notebooks that can be restored."""
    dialogs.ask("Deleted notebooks", _deleted_dialog)


def _deleted_dialog() -> None:
    gone = lifecycle.deleted(resources.workspace())
    if not gone:
        st.markdown("No deleted notebooks.")
        return
    chosen = st.selectbox(
        "Notebook", gone, format_func=lambda notebook: f"{notebook.title} ({notebook.path.name}), {ago(notebook.at)}"
    )
    if press_button("Restore", BRING_BACK, str(chosen.path), type="primary"):
        _bring_back(chosen)


def offer_deleted(wanted: str | None) -> None:
    """Draw a button that restores the notebook `wanted`, if it was deleted."""
    matches = (notebook for notebook in lifecycle.deleted(resources.workspace()) if notebook.path.stem == wanted)
    notebook = next(matches, None)
    if notebook is not None and press_button(
        f"Restore {notebook.path.name}", f"{BRING_BACK}-here", str(notebook.path), icon=":material/undo:"
    ):
        _bring_back(notebook)


def _bring_back(notebook: lifecycle.DeletedNotebook) -> None:
    back = attempt(lambda: lifecycle.bring_back(notebook), "Restored.")
    for key in (BRING_BACK, f"{BRING_BACK}-here"):
        state.clicks().mark_handled(key, done=False)
    dialogs.close()
    if back is not None:
        st.switch_page(NOTEBOOK.script, query_params={"notebook": back.path.stem})
    st.rerun()


def ask_new() -> NoReturn:
    """Open the dialog for a new notebook."""
    dialogs.ask("New notebook", _new_dialog)


def _new_dialog() -> None:
    """Ask for a title, create the file, open it."""
    title = st.text_input(
        "Title",
        placeholder="Does staleness hurt a PixelCNN?",
        help="Also names the file.",
        max_chars=notebooks.LONGEST_TITLE,
    )
    if press_button("Create", "create-notebook", title, type="primary", disabled=not title.strip()):
        try:
            stored = store.create(resources.workspace(), title.strip())
        except (ConfigError, FileExistsError) as error:
            state.clicks().mark_handled("create-notebook", done=False)
            st.error(str(error))
            return
        state.clicks().mark_handled("create-notebook", done=False)
        dialogs.close()
        notes.begin_note(stored)
        st.switch_page(NOTEBOOK.script, query_params={"notebook": stored.path.stem})


OWN_MODEL_TITLE = "Use my own model"
TEMPLATE = "template-module"
SUGGESTED = "my_model"


ASKS_NEXT = "asks-about-own-model"
"""Whether a question comes next, once the folder's modules are in use."""
SHIPPED = "Ask about a model that ships with Scalebook"


def ask_own_model(otherwise: Callable[[], NoReturn] | None = None) -> NoReturn:
    """Open the dialog for the user's own model: a module in the folder, or a new one from a template. `otherwise`: what
    a question does without it; with it, the question comes next."""
    dialogs.ask(OWN_MODEL_TITLE, partial(_own_model_dialog, otherwise), "large")


def has_unused() -> bool:
    """Whether the folder has models that could be used, and scalebook.toml names no module yet."""
    workspace = resources.workspace()
    return not workspace.settings.modules and any(module.models and not module.problem for module in found(workspace))


def asks_next() -> bool:
    """Whether the modules are in use that a question was waiting for; asked once."""
    workspace = resources.workspace()
    if dialogs.is_open() or not state.recall(ASKS_NEXT, False):
        return False
    is_used, is_trusted = bool(workspace.settings.modules), trust.trusted(workspace)
    if is_trusted or not is_used:  # else the page's head asks for trust
        state.pop(ASKS_NEXT, False)
    return is_used and is_trusted


def _own_model_dialog(otherwise: Callable[[], NoReturn] | None) -> None:
    state.remember(ASKS_NEXT, otherwise is not None)
    workspace = resources.workspace()
    named = workspace.settings.modules
    st.markdown(
        "Any LightningModule and LightningDataModule works. List the Python modules that define them in "
        f"`{SETTINGS}`; the classes then appear in **New experiment**."
    )
    modules = found(workspace)
    st.subheader("Found in this folder")
    if not modules:
        st.caption(
            f"No Python file in `{workspace.root}` defines a LightningModule or a LightningDataModule yet. Copy your "
            "file there and open this dialog again."
        )
    for package, of_package in groupby(modules, _package):
        _found_package(package, list(of_package), named)
    st.subheader("Start from a template")
    st.caption("A working file with a small model and its data. Replace both with your code.")
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        name = st.text_input("File name, without .py", SUGGESTED, key="template-name").strip()
    with right:
        wanted = press_button("Create file", TEMPLATE, name, type="primary" if not modules else "secondary",
                              disabled=not name, width="stretch")  # fmt: skip
    if wanted:
        words = f"Created {name}.py and added it to {SETTINGS}."
        _make_own_model(lambda: write_template(workspace, name), TEMPLATE, words)
    if not trust.trusted(workspace):
        st.caption(
            "This dialog only reads files. Nothing is imported or run until you press **Trust this folder**, which is "
            "the next step. You do it only once for the whole folder."
        )
    if otherwise is not None and st.button(SHIPPED, key="ask-shipped", type="tertiary"):
        state.pop(ASKS_NEXT, False)
        dialogs.close()
        otherwise()


def _package(module: FoundModule) -> str:
    """The package that a module belongs to; for a single file the module itself."""
    return module.name.partition(".")[0]


def _found_package(package: str, modules: Sequence[FoundModule], named: Collection[str]) -> None:
    """Draw a row: the files, the classes that each defines, and the button that adds all of them to scalebook.toml."""
    key = f"use-{package}"
    usable = [module.name for module in modules if not module.problem]
    new = [name for name in usable if name not in named]
    with st.container(border=True, key=f"found-{package}"):
        left, right = st.columns([3, 1], vertical_alignment="center")
        with left:
            for module in modules:
                html.draw(_own_model_words(module))
        with right:
            label = "In use" if usable and not new else "Use" if len(usable) < 2 else f"Use all {len(usable)}"
            used = press_button(label, key, " ".join(new), width="stretch", disabled=not new)
    if used:
        workspace = resources.workspace()
        words = f"Added {', '.join(new)} to {SETTINGS}."
        _make_own_model(lambda: name_modules(workspace, *new), key, words)


def _own_model_words(module: FoundModule) -> str:
    """The row's HTML. File names come from the folder, so they are escaped."""
    path = module.path.relative_to(resources.workspace().root)
    kinds = (("model", module.models), ("data", module.data))
    defined = [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]
    problem = f'<div class="sb-wrong">{escape(module.problem)}</div>' if module.problem else ""
    return f"<b>{escape(str(path))}</b><div>{escape(' · '.join(defined))}</div>{problem}"


def _make_own_model(act: Callable[[], object], key: str, toast: str) -> None:
    """Do `act` and close the dialog; an error is shown in the dialog, which then stays open.

    A folder that the person has trusted stays trusted: the module that they add here is theirs too.
    """
    workspace = resources.workspace()
    was_trusted = trust.trusted(workspace)
    try:
        act()
        if was_trusted:
            trust.trust(workspace)
    except (ConfigError, OSError) as error:
        state.clicks().mark_handled(key, done=False)
        st.error(str(error))
        return
    state.clicks().mark_handled(key, done=False)
    resources.look_anew()
    state.show_message(toast)
    dialogs.close()
    st.rerun()
