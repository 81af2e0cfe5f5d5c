"""Asking once more before a cell is removed from its notebook."""

from collections.abc import Callable
from html import escape
from typing import NoReturn

import streamlit as st

from scalebook.app import state
from scalebook.app.shared.components import html, press
from scalebook.app.shared.views import dialogs
from scalebook.app.shared.views.writing import write
from scalebook.training.notebook import edit
from scalebook.training.notebook.store import Stored


def confirm(
    stored: Stored, index: int, kind: str, name: str, stays: str, then: Callable[[], None] | None = None
) -> NoReturn:
    """Opens a dialog about cell `index`, of the `kind` called `name`; `stays` says what of it is not deleted.

    `then` is called once it has been.
    """

    def ask() -> None:
        html.draw(f"This removes <b>{escape(name)}</b> from the notebook.")
        st.markdown(f"{stays} **Undo**, above the notebook, restores it.".strip())
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Cancel", key="keep-cell"):
                dialogs.close()
                st.rerun()
            if press.button("Delete", "delete-cell", stored.stamp, type="primary"):
                done = write(stored, lambda notebook: edit.remove(notebook, index), "Deleted. Undo restores it.")
                state.clicks().settle("delete-cell")
                if done is not None and then is not None:
                    then()
                dialogs.close()
                st.rerun()

    dialogs.ask(f"Delete this {kind}?", ask)
