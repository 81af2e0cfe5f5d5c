"""Below the last cell: what can be added to a notebook there."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.compare.services import plans
from scalebook.app.compare.views import claim, editing
from scalebook.app.shared import notes
from scalebook.training.notebook.store import Stored


def show(stored: Stored) -> None:
    """Buttons for a note and, where there is an experiment, for a comparison and a claim; comparisons left unsaved."""
    editing.show_left(stored)
    with st.container(horizontal=True):
        if st.button("Add a note", icon=":material/add:", type="tertiary"):
            notes.add(stored, len(stored.notebook.cells))
        if stored.notebook.experiments() and st.button(
            "Add a comparison", icon=":material/stacked_line_chart:", type="tertiary"
        ):
            editing.ask([plans.new(stored, resources.description(), recorded=editing.recorded(stored))])
        if stored.notebook.experiments() and st.button("Add a claim", icon=":material/gavel:", type="tertiary"):
            claim.ask_new(stored)
