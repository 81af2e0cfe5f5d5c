"""Below the last cell: what can be added to a notebook there."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.compare import data as comparisons
from scalebook.app.compare.cells import ask_claim, ask_comparison, recorded, show_left
from scalebook.app.shared import notes
from scalebook.training.notebook.store import Stored


def show(stored: Stored) -> None:
    """Buttons for a note and, where there is an experiment, for a comparison and a claim; comparisons left unsaved."""
    show_left(stored)
    with st.container(horizontal=True):
        if st.button("Add a note", icon=":material/add:", type="tertiary"):
            notes.add(stored, len(stored.notebook.cells))
        if stored.notebook.experiments() and st.button(
            "Add a comparison", icon=":material/stacked_line_chart:", type="tertiary"
        ):
            ask_comparison([comparisons.new_comparison(stored, resources.description(), recorded=recorded(stored))])
        if stored.notebook.experiments() and st.button("Add a claim", icon=":material/gavel:", type="tertiary"):
            ask_claim(stored)
