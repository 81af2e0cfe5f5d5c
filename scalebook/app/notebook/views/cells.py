"""Any cell of a notebook, by its kind."""

import streamlit as st

from scalebook.app.compare.cells import show_claim, show_comparison
from scalebook.app.notebook.views import experiment
from scalebook.app.notebook.views.run_all import Standing
from scalebook.app.search.views import search_cell
from scalebook.app.shared import notes
from scalebook.app.shared.dialogs import write
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import BrokenCell, Cell, ClaimCell, ComparisonCell, ExperimentCell, SearchCell
from scalebook.training.notebook.store import Stored


def show(stored: Stored, index: int, cell: Cell, standing: Standing) -> None:
    """Draw cell `index` of the notebook, with all its buttons; `standing` takes in how it stands."""
    notes.show_new(stored, index)
    if isinstance(cell, ExperimentCell):
        standing.seeds[cell.name] = experiment.show(stored, index, cell, standing.reader)
    elif isinstance(cell, ComparisonCell):
        show_comparison(stored, index, cell, standing.reader)
    elif isinstance(cell, ClaimCell):
        show_claim(stored, index, cell)
    elif isinstance(cell, SearchCell):
        if search_cell.show(stored, index, cell):
            standing.searching.append(cell.name)
    elif isinstance(cell, BrokenCell):
        _broken(stored, index, cell)
    else:
        notes.show(stored, index, cell)


def _broken(stored: Stored, index: int, cell: BrokenCell) -> None:
    """A cell that cannot be read: why, its text, and a way to mend it right here."""
    with st.container(border=True, key=f"cell-broken-{index}"):
        it = "it " if cell.message.startswith(("is ", "has ")) else ""
        st.error(f"The {cell.kind} {cell.name or 'cell'} cannot be read: {it}{cell.message}", icon=":material/error:")
        height = min(500, max(140, 24 * (cell.source.count("\n") + 2)))
        text = st.text_area("Text", cell.source, height=height, key=f"broken-{index}-{abs(hash(cell.source)) % 10**8}")
        if st.button("Save", key=f"save-broken-{index}", disabled=text == cell.source):
            text = text if text.endswith("\n") else f"{text}\n"
            write(stored, lambda notebook: edit.replace_source(notebook, index, text))
            st.rerun()
