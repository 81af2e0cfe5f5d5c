"""The notebook: its cells in order, as a document."""

import streamlit as st

from scalebook.app import resources
from scalebook.app.navigation import COMPOSE
from scalebook.app.notebook.views import adding, cells, earlier, exporting, managing, new_notebook, run_all
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
if head.intent == "undo" and stored:
    earlier.undo(stored)
elif head.intent == "history" and stored:
    earlier.ask(stored)
elif head.intent == "new notebook":
    new_notebook.ask()
elif head.intent == "deleted":
    managing.ask_deleted()
elif head.intent in ("rename", "duplicate", "delete") and stored:
    managing.act(head.intent, stored)
elif head.intent == "new experiment" and chosen:
    st.switch_page(COMPOSE.script, query_params={"notebook": chosen.name})
elif head.picked and head.picked != (chosen.name if chosen else None):
    st.query_params.from_dict({"notebook": head.picked})
    st.rerun()

if chosen is None and wanted:
    html.empty(f"There is no notebook called {wanted}", "Choose another one above, or make a new one.")
    managing.offer(wanted)
elif chosen is None:
    remedy = f"or bring some that come with Scalebook: scalebook notebook examples {workspace.root}"
    html.empty("No notebook yet", f"Press New notebook, put a Markdown file into {workspace.root}, {remedy}.")
if opened:
    stored, problem = opened, ""
if problem:
    st.error(problem, icon=":material/error:")
if stored is not None:
    note.look_for_drafts(stored)
    together, standing = st.container(), run_all.Standing(resources.notebook_runs(stored.path.name))
    with st.container(key="document", gap="medium"):
        if heading := notebooks.heading(stored.notebook):
            st.title(heading)
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
