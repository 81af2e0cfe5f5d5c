"""A note: Markdown that is edited in place."""

import streamlit as st
from training.notebook.store import Stored

from app import state
from app.services import notebooks
from app.views.writing import write
from training.notebook import edit
from training.notebook.cells import Note


def show(stored: Stored, index: int, note: Note) -> None:
    """The text, with an Edit button that appears when the pointer is over it; or its editor."""
    key = notebooks.key(note, index)
    if state.recall("editing", "") == key:
        _editor(index, key)
        return
    if not note.source.strip():
        return
    with st.container(key=f"note-{key}"):
        st.markdown(note.source)
        with st.container(key=f"edit-note-{key}"):
            if st.button("Edit", key=f"edit-{key}", icon=":material/edit:", type="secondary"):
                open_editor(stored, index)
                st.rerun()


def open_editor(stored: Stored, index: int) -> None:
    """Edit cell `index`; what the person saw is kept, so that another edit meanwhile is noticed."""
    state.remember("editing", notebooks.key(stored.notebook.cells[index], index))
    state.remember("edited", stored)


def add(stored: Stored, index: int) -> None:
    """Insert a note before cell `index` and open its editor."""
    if changed := write(stored, lambda notebook: edit.insert_note(notebook, index, notebooks.NEW_NOTE), said=""):
        new = next(
            i
            for i, one in enumerate(changed.notebook.cells)
            if notebooks.NEW_NOTE.strip() in one.source and i >= index - 1
        )
        open_editor(changed, new)
    st.rerun()


def _editor(index: int, key: str) -> None:
    opened: Stored | None = state.recall("edited", None)
    assert opened is not None, "kept together with what is being edited"
    before = opened.notebook.cells[index].source
    with st.container(border=True, key=f"editor-{key}"):
        height = min(600, max(140, 26 * (before.count("\n") + 3)))
        text = st.text_area("Markdown", before, height=height, key=f"text-{key}", label_visibility="collapsed")
        with st.container(horizontal=True):
            if st.button("Save", key=f"save-{key}", type="primary"):
                text = text if text.endswith("\n") else f"{text}\n"
                _close()
                write(opened, lambda notebook: edit.replace_note(notebook, index, text))
                st.rerun()
            if st.button("Cancel", key=f"cancel-{key}"):
                _close()
                st.rerun()
            if st.button("Delete", key=f"delete-{key}", type="tertiary"):
                _close()
                write(opened, lambda notebook: edit.remove(notebook, index), "Deleted.")
                st.rerun()


def _close() -> None:
    state.take("editing", "")
    state.take("edited", None)
