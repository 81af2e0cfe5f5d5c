"""The notebook: its cells in order, as a document."""

import streamlit as st

from scalebook.app import resources
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
from scalebook.app.shared.components import html, page_head
from scalebook.app.shared.services import notebooks
from scalebook.app.shared.views import arriving, dialogs, last_notebook, note, pulse
from scalebook.training.notebook import lifecycle
from scalebook.training.notebook.cells import Note

workspace = resources.workspace()
choices = notebooks.choices(workspace)
wanted = st.query_params.get("notebook")
chosen = last_notebook.pick(wanted)
if chosen is not None:
    page_head.called(chosen.title)
    last_notebook.keep(chosen)

stored, problem = notebooks.load(chosen) if chosen else (None, "")
opened = note.opened_here(chosen.path) if chosen else None
head = page_head.notebook(
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
    note.look_for_drafts(stored)
    together, standing = st.container(), run_all.Standing(resources.notebook_runs(stored.path.name))
    with st.container(key="document", gap="medium"):
        if title := notebooks.heading(stored.notebook):
            st.title(title)
        for index, cell in enumerate(stored.notebook.cells):
            cells.show(stored, index, cell, standing)
        note.show_new(stored, len(stored.notebook.cells))
        if all(isinstance(cell, Note) for cell in stored.notebook.cells):
            html.empty("No experiment yet", "Press New experiment: choose a model, data and a strategy, then Run.")
        adding.show(stored)
    with together:
        run_all.show(stored, standing)

if cell_wanted := st.query_params.get("cell"):
    arriving.stand_at(cell_wanted)
dialogs.show()
pulse.watch(chosen.path if chosen else None)
