"""The notebook as a whole: renamed, duplicated, deleted, brought back."""

from functools import partial
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.notebook.services import renaming
from scalebook.app.shared import dialogs, notebooks
from scalebook.app.shared.dialogs import attempt, in_conflict
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import ago
from scalebook.training.notebook import lifecycle, store
from scalebook.training.notebook.lifecycle import DeletedNotebook
from scalebook.training.notebook.store import Stored
from scalebook.training.notebook.titles import retitled

RENAME, DELETE, BRING_BACK = "rename-notebook", "delete-notebook", "bring-back"


def act(intent: str, stored: Stored) -> None:
    """What the menu of the notebook offers; anything else is not its business."""
    if intent == "rename":
        dialogs.ask("Rename this notebook", partial(_rename, stored))
    elif intent == "duplicate":
        copy = attempt(lambda: lifecycle.duplicate(stored), "This is the copy. Its experiments have no runs yet.")
        if copy is not None:
            st.query_params["notebook"] = copy.path.stem
        st.rerun()
    elif intent == "delete":
        dialogs.ask("Delete this notebook?", partial(_delete, stored))


def _rename(stored: Stored) -> None:
    title = st.text_input("Title", stored.notebook.title, key="rename-title", max_chars=notebooks.LONGEST_TITLE)
    stem = st.text_input("File name, without .md", stored.path.stem, key="rename-file")
    st.caption("Its runs, searches, drafts and history move with it.")
    now = f"{stored.path.name} {stored.stamp}"
    if not press_button("Rename", RENAME, now, type="primary", disabled=not (title.strip() and stem.strip())):
        return
    with st.spinner("Moving its runs …"):
        changed = attempt(lambda: _renamed(stored, title.strip(), stem.strip()), "Renamed.")
    state.clicks().settle(RENAME, done=changed is not None)
    if changed is not None:
        dialogs.close()
        st.switch_page(NOTEBOOK.script, query_params={"notebook": changed.path.stem})
    if in_conflict():
        dialogs.close()
    st.rerun()


def _renamed(stored: Stored, title: str, stem: str) -> Stored:
    called = stored.notebook.title
    retitled(stored.notebook, title)  # refuses a title before anything is done
    if stem != stored.path.stem:
        stored = renaming.rename(resources.workspace(), resources.reader(), stored, stem)
    return stored if title == called else store.save(stored, retitled(stored.notebook, title))


def _delete(stored: Stored) -> None:
    st.markdown(
        f"This removes `{stored.path.name}`. Its runs stay in MLflow and on the Runs page. To restore it, use "
        "**Deleted notebooks** in any notebook's menu."
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="notebook-stays"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, stored.stamp, type="primary"):
            attempt(lambda: _removed(stored), f"Deleted {stored.path.name}.")
            state.clicks().settle(DELETE, done=False)
            dialogs.close()
            st.rerun()


def _removed(stored: Stored) -> Stored:
    lifecycle.delete(stored)
    return stored


def ask_deleted() -> NoReturn:
    """Opens the list of those that can be brought back."""
    dialogs.ask("Deleted notebooks", _deleted)


def _deleted() -> None:
    gone = lifecycle.deleted(resources.workspace())
    if not gone:
        st.markdown("There are none.")
        return
    chosen = st.selectbox(
        "Notebook", gone, format_func=lambda notebook: f"{notebook.title} ({notebook.path.name}), {ago(notebook.at)}"
    )
    if press_button("Restore", BRING_BACK, str(chosen.path), type="primary"):
        _bring_back(chosen)


def offer(wanted: str | None) -> None:
    """Where the notebook that is asked for has been deleted: a way to have it again."""
    known = (notebook for notebook in lifecycle.deleted(resources.workspace()) if notebook.path.stem == wanted)
    notebook = next(known, None)
    if notebook is not None and press_button(
        f"Restore {notebook.path.name}", f"{BRING_BACK}-here", str(notebook.path), icon=":material/undo:"
    ):
        _bring_back(notebook)


def _bring_back(notebook: DeletedNotebook) -> None:
    back = attempt(lambda: lifecycle.bring_back(notebook), "Restored.")
    for key in (BRING_BACK, f"{BRING_BACK}-here"):
        state.clicks().settle(key, done=False)
    dialogs.close()
    if back is not None:
        st.switch_page(NOTEBOOK.script, query_params={"notebook": back.path.stem})
    st.rerun()
