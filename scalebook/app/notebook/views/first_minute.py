"""An empty folder: what Scalebook is, and the three ways to begin."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import HELP, NOTEBOOK
from scalebook.app.notebook.views import new_notebook, own_model
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import plural
from scalebook.training.errors import ConfigError
from scalebook.training.notebook.examples import copy_examples

ABOUT = (
    "An experiment notebook for PyTorch Lightning models: what does each way of using more workers gain, and cost?",
    "Train on one process, with DDP, or with an asynchronous parameter server: choose in a form, press **Run**.",
    "Compare time to a target, updates per second and stale gradients; keep notes and conclusions beside the results.",
)
"""Three lines."""
ADD = "add-examples"
EXAMPLES = "Eight notebooks with experiments, comparisons and searches, ready to run."
NEW = "An empty notebook. A notebook is a Markdown file in this folder."
OWN = "A LightningModule of yours from this folder, or a template to start from."


def show() -> None:
    """In place of a notebook."""
    with st.container(key="first-minute"):
        st.title("Scalebook")
        for line in ABOUT:
            st.markdown(line)
        examples, new, own = st.columns(3, gap="medium", border=True)
        with examples:
            added = press_button("Add the examples", ADD, icon=":material/library_books:", width="stretch")
            st.caption(EXAMPLES)
        with new:
            asked_new = st.button("New notebook", icon=":material/note_add:", type="primary", width="stretch")
            st.caption(NEW)
        with own:
            asked_own = st.button("Use my own model", icon=":material/code:", width="stretch")
            st.caption(OWN)
        st.caption(f"Everything is stored in `{resources.workspace().root}`.")
        st.page_link(HELP.script, label="How Scalebook works", icon=HELP.icon)
    if added:
        _add_examples()
    elif asked_new:
        new_notebook.ask()
    elif asked_own:
        own_model.ask()


def _add_examples() -> None:
    try:
        copied = copy_examples(resources.workspace().root)
    except (ConfigError, OSError) as error:
        state.say(str(error), ":material/error:")
    else:
        state.say(f"Added {plural(sum(copied.values()), 'notebook')}.")
    state.clicks().settle(ADD, done=False)
    st.switch_page(NOTEBOOK.script)
