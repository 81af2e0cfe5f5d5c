"""A new notebook, from its title."""

from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.shared import dialogs, notebooks, notes
from scalebook.app.shared.widgets import press_button
from scalebook.training.errors import ConfigError
from scalebook.training.notebook import store


def ask() -> NoReturn:
    """Opens the dialog."""
    dialogs.ask("New notebook", _draw)


def _draw() -> None:
    """Asks for a title, makes the file, opens it."""
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
            state.clicks().settle("create-notebook", done=False)
            st.error(str(error))
            return
        state.clicks().settle("create-notebook", done=False)
        dialogs.close()
        notes.begin(stored)
        st.switch_page(NOTEBOOK.script, query_params={"notebook": stored.path.stem})
