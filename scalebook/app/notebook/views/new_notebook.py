"""A new notebook, from its title."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.navigation import NOTEBOOK
from scalebook.training.errors import ConfigError
from scalebook.training.notebook import store


@st.dialog("New notebook")
def dialog() -> None:
    """Asks for a title, makes the file, opens it."""
    title = st.text_input("Title", placeholder="Does staleness hurt a PixelCNN?", help="The file is named after it.")
    if st.button("Create", type="primary", disabled=not title.strip()):
        try:
            stored = store.create(resources.workspace(), title.strip())
        except (ConfigError, FileExistsError) as error:
            st.error(str(error))
            return
        st.switch_page(NOTEBOOK.script, query_params={"notebook": stored.path.stem})
