"""What was asked for in the notebook's first row."""

import streamlit as st

from scalebook.app.navigation import COMPOSE
from scalebook.app.notebook.views import earlier, managing, new_notebook, own_model
from scalebook.app.notebook.widgets import NotebookHead
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.training.notebook.store import Stored


def act(head: NotebookHead, chosen: NotebookChoice | None, stored: Stored | None) -> None:
    """Do it. `stored` is None where the chosen notebook cannot be read."""
    if head.intent == "undo" and stored:
        earlier.undo(stored)
    elif head.intent == "history" and stored:
        earlier.ask(stored)
    elif head.intent == "new notebook":
        new_notebook.ask()
    elif head.intent == "deleted":
        managing.ask_deleted()
    elif head.intent == "own model":
        own_model.ask()
    elif head.intent in ("rename", "duplicate", "delete") and stored:
        managing.act(head.intent, stored)
    elif head.intent == "new experiment" and chosen:
        st.switch_page(COMPOSE.script, query_params={"notebook": chosen.name})
    elif head.picked and head.picked != (chosen.name if chosen else None):
        st.query_params.from_dict({"notebook": head.picked})
        st.rerun()
