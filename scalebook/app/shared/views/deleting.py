"""Asking once more before a cell is removed from its notebook."""

import streamlit as st

from scalebook.app.shared.views.writing import write
from scalebook.training.notebook import edit
from scalebook.training.notebook.store import Stored


def confirm(stored: Stored, index: int, kind: str, name: str, stays: str) -> None:
    """A dialog about cell `index`, of the `kind` called `name`; `stays` says what of it is not deleted."""

    @st.dialog(f"Delete this {kind}?")
    def ask() -> None:
        st.markdown(f"**{name}** is removed from the notebook. {stays}")
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Cancel"):
                st.rerun()
            if st.button("Delete", type="primary"):
                write(stored, lambda notebook: edit.remove(notebook, index), "Deleted.")
                st.rerun()

    ask()
