"""The notebook: its cells in order, as a document."""

import json
import re
from collections.abc import Callable

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import COMPOSE, HELP, NOTEBOOK
from scalebook.app.notebook import managing
from scalebook.app.notebook.cells import CellStates, come_near, show_adding, show_cell, show_run_all
from scalebook.app.notebook.managing import offer_deleted, undo_from
from scalebook.app.notebook.widgets import NotebookHead, notebook_head
from scalebook.app.shared import dialogs, html, notebooks, notes, style
from scalebook.app.shared.frame import keep_last_notebook, last_notebook, watch_changes
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import call_page, press_button
from scalebook.app.shared.words import plural
from scalebook.training.base import ConfigError
from scalebook.training.notebook import Note, Stored, copy_examples, lifecycle
from scalebook.training.notebook.export import as_html, gather


def show(wanted: str | None, cell_wanted: str) -> None:
    """Draw the notebook `wanted`, or the last open one, and scroll to the cell `cell_wanted`."""
    workspace = resources.workspace()
    choices = notebooks.choices(workspace)
    chosen = last_notebook(wanted)
    if chosen is not None:
        call_page(chosen.title)
        keep_last_notebook(chosen)

    stored, problem = notebooks.load(chosen) if chosen else (None, "")
    opened = notes.opened_here(chosen.path) if chosen else None
    head = notebook_head(
        choices,
        chosen,
        undo_from(stored),
        maker(stored),
        whole=stored is not None and opened is None,
        deleted=bool(lifecycle.deleted(workspace)),
    )
    _act(head, chosen, stored)

    if chosen is None and wanted:
        html.empty(f"No notebook called {wanted}", "Choose another one above, or create one.")
        offer_deleted(wanted)
    elif chosen is None:
        first_minute()
    if opened:
        stored, problem = opened, ""
    if problem:
        st.error(problem, icon=":material/error:")
    if stored is not None:
        notes.look_for_drafts(stored)
        if cell_wanted:
            come_near(cell_wanted)
        together, standing = st.container(), CellStates(resources.notebook_runs(stored.path.name))
        with st.container(key="document", gap="medium"):
            if title := notebooks.heading(stored.notebook):
                st.title(title)
            for index, cell in enumerate(stored.notebook.cells):
                show_cell(stored, index, cell, standing)
            notes.show_new(stored, len(stored.notebook.cells))
            if all(isinstance(cell, Note) for cell in stored.notebook.cells):
                html.empty("No experiment yet", "Press New experiment: choose a model, data and a strategy, then Run.")
            show_adding(stored)
        with together:
            show_run_all(stored, standing)

    if cell_wanted:
        stand_at(cell_wanted)
    dialogs.show()
    watch_changes(chosen.path if chosen else None)


def _act(head: NotebookHead, chosen: NotebookChoice | None, stored: Stored | None) -> None:
    """Do what the first row asks for. `stored` is None if the chosen notebook cannot be read."""
    if head.intent == "undo" and stored:
        managing.undo(stored)
    elif head.intent == "history" and stored:
        managing.ask_history(stored)
    elif head.intent == "new notebook":
        managing.ask_new()
    elif head.intent == "deleted":
        managing.ask_deleted()
    elif head.intent == "own model":
        managing.ask_own_model()
    elif head.intent in ("rename", "duplicate", "delete") and stored:
        managing.manage(head.intent, stored)
    elif head.intent == "new experiment" and chosen:
        st.switch_page(COMPOSE.script, query_params={"notebook": chosen.name})
    elif head.picked and head.picked != (chosen.name if chosen else None):
        st.query_params.from_dict({"notebook": head.picked})
        st.rerun()


def maker(stored: Stored | None) -> Callable[[], str] | None:
    """A function that exports the notebook, as it is when called, as one HTML file; None without a notebook."""
    if stored is None:
        return None
    path, workspace, reader, description = (
        stored.path, resources.workspace(), resources.reader(), resources.description()
    )  # fmt: skip
    return lambda: as_html(gather(workspace, reader, notebooks.read(path), description))


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


def first_minute() -> None:
    """Draw the page of an empty folder: what Scalebook is, and three ways to start."""
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
        managing.ask_new()
    elif asked_own:
        managing.ask_own_model()


def _add_examples() -> None:
    try:
        copied = copy_examples(resources.workspace().root)
    except (ConfigError, OSError) as error:
        state.show_message(str(error), ":material/error:")
    else:
        state.show_message(f"Added {plural(sum(copied.values()), 'notebook')}.")
    state.clicks().mark_handled(ADD, done=False)
    st.switch_page(NOTEBOOK.script)


SCRIPT = style.ASSETS / "arriving.js"
KINDS = ("experiment", "search", "comparison", "claim", "broken")


def stand_at(name: str) -> None:
    """Scroll to a cell, once in each visit, so that later redraws do not move the page."""
    key = re.sub(r"[^a-zA-Z0-9_-]", "-", name.strip())  # as Streamlit makes a class of a key
    places = [f"st-key-cell-{kind}-{key}" for kind in KINDS]
    call = f"({SCRIPT.read_text(encoding='utf-8')})({json.dumps(places)}, {json.dumps(f'{state.visits()} {name}')})"
    with st.container(key="stand-at"):
        st.html(f"<script>{call.replace('</', '<' + chr(92) + '/')}</script>", unsafe_allow_javascript=True)
