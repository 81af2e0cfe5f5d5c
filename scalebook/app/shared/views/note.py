"""A note: Markdown that is edited in place."""

import re
from pathlib import Path

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared.services import notebooks
from scalebook.app.shared.views.writing import write
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.store import Stored
from scalebook.training.trust import trusted

PICTURE = re.compile(r"!\[[^\]]*\]\(\s*<?\w+://")  # of another server
EDITING = "editing"  # the key of the cell whose editor is open, or `new-INDEX`
EDITED = "edited"  # the notebook as the person saw it then, so that an edit meanwhile is noticed


def show(stored: Stored, index: int, note: Note) -> None:
    """The text, with an Edit button that appears when the pointer is over it; or its editor."""
    key = notebooks.key(note, index)
    if state.recall(EDITING, "") == key:
        _editor(index, key)
        return
    with st.container(key=f"note-{key}"):
        st.markdown(note.source)
        if PICTURE.search(note.source) and not trusted(resources.workspace()):
            st.caption("Pictures from elsewhere are not fetched: this folder is not trusted (`scalebook ui --trust`).")
        with st.container(key=f"edit-note-{key}"):
            if st.button("Edit", key=f"edit-{key}", icon=":material/edit:"):
                _open(stored, key)


def opened_here(path: Path) -> Stored | None:
    """The notebook in `path` as it was when the open editor was opened; None where none is open on it."""
    opened: Stored | None = state.recall(EDITED, None)
    return opened if opened is not None and opened.path == path else None


def show_new(index: int) -> None:
    """The editor of a note that is to stand before cell `index`, where one was asked for."""
    key = f"new-{index}"
    if state.recall(EDITING, "") == key:
        _editor(index, key)


def add(stored: Stored, index: int) -> None:
    """Open an editor for a new note before cell `index`; the file changes only when it is saved."""
    _open(stored, f"new-{index}")


def _open(stored: Stored, key: str) -> None:
    state.remember(EDITING, key)
    state.remember(EDITED, stored)
    st.rerun()


def _editor(index: int, key: str) -> None:
    opened: Stored | None = state.recall(EDITED, None)
    assert opened is not None, "kept together with what is being edited"
    new = key.startswith("new-")
    before = "" if new else opened.notebook.cells[index].source
    with st.container(border=True, key=f"editor-{key}"):
        height = min(600, max(140, 26 * (before.count("\n") + 3)))
        text = st.text_area(
            "Markdown", before, height=height, key=f"text-{key}", label_visibility="collapsed",
            placeholder="Write here. Markdown works: # headings, - lists, [links](https://...), $formulas$.",
        )  # fmt: skip
        text = text if text.endswith("\n") else f"{text}\n"
        with st.container(horizontal=True):
            if st.button("Save", key=f"save-{key}", type="primary"):
                _finish(opened, index, text, new)
            if st.button("Cancel", key=f"cancel-{key}"):
                _close()
            if not new and st.button("Delete", key=f"delete-{key}", type="tertiary"):
                write(opened, lambda notebook: edit.remove(notebook, index), "Deleted.")
                _close()


def _finish(opened: Stored, index: int, text: str, new: bool) -> None:
    def change(notebook: Notebook) -> Notebook:
        if new:
            return edit.insert_note(notebook, index, f"{text}\n") if text.strip() else notebook
        return edit.replace_note(notebook, index, text)

    write(opened, change)
    _close()


def _close() -> None:
    state.take(EDITING, "")
    state.take(EDITED, None)
    st.rerun()
