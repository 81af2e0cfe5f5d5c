"""The notebook: its cells in order, as a document."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.notebook.page import stand_at
from scalebook.app.notebook.views import (
    adding,
    cells,
    earlier,
    exporting,
    first_minute,
    heading,
    managing,
    run_all,
)
from scalebook.app.notebook.widgets import notebook_head
from scalebook.app.shared import dialogs, html, notebooks, notes
from scalebook.app.shared.frame import keep_last, last_notebook, watch
from scalebook.app.shared.widgets import call_page
from scalebook.training.notebook import lifecycle
from scalebook.training.notebook.cells import Note

workspace = resources.workspace()
choices = notebooks.choices(workspace)
wanted = st.query_params.get("notebook")
chosen = last_notebook(wanted)
if chosen is not None:
    call_page(chosen.title)
    keep_last(chosen)

stored, problem = notebooks.load(chosen) if chosen else (None, "")
opened = notes.opened_here(chosen.path) if chosen else None
head = notebook_head(
    choices,
    chosen,
    earlier.undo_from(stored),
    exporting.maker(stored),
    whole=stored is not None and opened is None,
    deleted=bool(lifecycle.deleted(workspace)),
)
heading.act(head, chosen, stored)

if chosen is None and wanted:
    html.empty(f"No notebook called {wanted}", "Choose another one above, or create one.")
    managing.offer(wanted)
elif chosen is None:
    first_minute.show()
if opened:
    stored, problem = opened, ""
if problem:
    st.error(problem, icon=":material/error:")
if stored is not None:
    notes.look_for_drafts(stored)
    together, standing = st.container(), run_all.Standing(resources.notebook_runs(stored.path.name))
    with st.container(key="document", gap="medium"):
        if title := notebooks.heading(stored.notebook):
            st.title(title)
        for index, cell in enumerate(stored.notebook.cells):
            cells.show(stored, index, cell, standing)
        notes.show_new(stored, len(stored.notebook.cells))
        if all(isinstance(cell, Note) for cell in stored.notebook.cells):
            html.empty("No experiment yet", "Press New experiment: choose a model, data and a strategy, then Run.")
        adding.show(stored)
    with together:
        run_all.show(stored, standing)

if cell_wanted := st.query_params.get("cell"):
    stand_at(cell_wanted)
dialogs.show()
watch(chosen.path if chosen else None)
