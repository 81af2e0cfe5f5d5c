"""The notebook: its cells in order, as a document."""

import json
import re
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.ask.cells import ask_question, folded
from scalebook.app.navigation import COMPOSE, HELP, NOTEBOOK
from scalebook.app.notebook import managing
from scalebook.app.notebook.cells import CellStates, come_near, show_adding, show_cell, show_run_all
from scalebook.app.notebook.managing import offer_deleted, undo_from
from scalebook.app.notebook.widgets import NotebookExports, NotebookHead, notebook_head, unread_cell
from scalebook.app.shared import dialogs, html, notebooks, notes, style
from scalebook.app.shared.frame import keep_last_notebook, last_notebook, models_are_read, watch_changes
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import call_page, press_button
from scalebook.app.shared.words import plural
from scalebook.training.asking import all_recipes, exported_answers
from scalebook.training.base import ConfigError
from scalebook.training.notebook import Note, Stored, copy_examples, lifecycle, store
from scalebook.training.notebook.claims import written_tables
from scalebook.training.notebook.export import archive, as_html, gather


def show(wanted: str | None, cell_wanted: str) -> None:
    """Draw the notebook `wanted`, or the last open one, and scroll to the cell `cell_wanted`."""
    workspace = resources.workspace()
    choices = notebooks.choices(workspace)
    chosen = last_notebook(wanted)
    if chosen is not None:
        call_page(chosen.title)
        keep_last_notebook(chosen)

    stored, problem = notebooks.load(chosen) if chosen else (None, "")
    if stored is not None:
        notes.come_back(stored)
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
    may_wait = opened is None and not dialogs.is_open()  # else what is being typed would be lost
    if stored is not None and may_wait and not _is_described():
        _show_unread(stored)
    elif stored is not None:
        _show_document(stored, cell_wanted)
    if cell_wanted:
        stand_at(cell_wanted)
    watch_changes(chosen.path if chosen else None)


def _show_document(stored: Stored, cell_wanted: str) -> None:
    """Draw the notebook's cells, with their buttons."""
    ask_as_begun(stored, cell_wanted)
    notes.look_for_drafts(stored)
    come_near(cell_wanted)
    together, standing = st.container(), CellStates(resources.notebook_runs(stored.path.name))
    with st.container(key="document", gap="medium"):
        if title := notebooks.heading(stored.notebook):
            st.title(title)
        hidden = folded(stored, cell_wanted)
        for index, cell in enumerate(stored.notebook.cells):
            show_cell(stored, index, cell, standing, hidden)
        notes.show_new(stored, len(stored.notebook.cells))
        if all(isinstance(cell, Note) for cell in stored.notebook.cells):
            html.empty(
                "No experiment yet", "Press New experiment, choose a model, data and a strategy, and then press Run."
            )
        show_adding(stored)
    with together:
        show_run_all(stored, standing)


def _is_described() -> bool:
    """Whether models and strategies have been read; else draw that they are, or why they cannot be."""
    try:
        return models_are_read()
    except ConfigError as error:
        st.error(str(error), icon=":material/error:")
        return False


def _show_unread(stored: Stored) -> None:
    """Draw the notebook as it is written: nothing of it can be edited or run before the models have been read."""
    with st.container(key="document", gap="medium"):
        if title := notebooks.heading(stored.notebook):
            st.title(title)
        for cell in stored.notebook.cells:
            if isinstance(cell, Note):
                st.markdown(written_tables.without_marks(cell.source))
            else:
                unread_cell(type(cell).__name__.removesuffix("Cell").lower(), cell.name, cell.source)


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
    elif head.intent == "ask" and stored:
        ask(stored)
    elif head.intent == "new experiment" and chosen:
        st.switch_page(COMPOSE.script, query_params={"notebook": chosen.name})
    elif head.picked and head.picked != (chosen.name if chosen else None):
        st.query_params.from_dict({"notebook": head.picked})
        st.rerun()


ASKS = "asks-about-new-experiment"
"""The notebook whose next new experiment a question is asked about."""
FIRST = "Describe the training that you want to ask about, then press **Save**. The question is the next step."


def ask(stored: Stored) -> NoReturn:
    """Open the dialog for a question; where there is no experiment yet, the form of one first."""
    if stored.notebook.experiments():
        ask_question(stored)
    state.remember(ASKS, stored.path.stem)
    state.show_message(FIRST, ":material/contact_support:")
    st.switch_page(COMPOSE.script, query_params={"notebook": stored.path.stem})


def ask_as_begun(stored: Stored, name: str) -> None:
    """Open the dialog for a question that was begun before its experiment was there, once it is."""
    if state.pop(ASKS, "") == stored.path.stem and stored.notebook.experiment(name) is not None:
        ask_question(stored, name)


def maker(stored: Stored | None) -> NotebookExports | None:
    """What exports the notebook as it is when the file is downloaded; None without a notebook."""
    if stored is None:
        return None
    path, workspace, reader = stored.path, resources.workspace(), resources.reader()

    def html_page() -> str:
        now, description = notebooks.read(path), resources.description()
        return as_html(
            gather(workspace, reader, now, description, exported_answers(workspace, reader, now, description))
        )

    return NotebookExports(html_page, lambda: archive(workspace, reader, notebooks.read(path), resources.description()))


ABOUT = (
    "An experiment notebook for PyTorch Lightning models: it shows what each way to use more workers gains and costs.",
    "Train in one process, with DDP or with an asynchronous parameter server. Choose in a form and press **Run**.",
    "Compare time to a target, updates per second and staleness, and keep notes and conclusions with the results.",
)
"""Three lines."""
ADD, ASK = "add-examples", "ask-first"
QUESTIONS = "Questions"
ANSWERED = "Ask about your model and data, or about the examples. Scalebook runs what is needed and shows the answer."
EXAMPLES = "Eight notebooks with experiments, comparisons and searches, ready to run."
NEW = "An empty notebook. A notebook is a Markdown file in this folder."
OWN = "Use a LightningModule from this folder, or start from a template."


def first_minute() -> None:
    """Draw the page of an empty folder: what Scalebook is, and four ways to start."""
    with st.container(key="first-minute"):
        st.title("Scalebook")
        for line in ABOUT:
            st.markdown(line)
        with st.container(border=True, key="first-question"):
            asks_first = press_button("Ask a question", ASK, icon=":material/contact_support:", type="primary")
            st.markdown("\n".join(f"- {one.question}" for one in all_recipes().values()))
            st.caption(ANSWERED)
        examples, new, own = st.columns(3, gap="medium", border=True)
        with examples:
            added = press_button("Add the examples", ADD, icon=":material/library_books:", width="stretch")
            st.caption(EXAMPLES)
        with new:
            asked_new = st.button("New notebook", icon=":material/note_add:", width="stretch")
            st.caption(NEW)
        with own:
            asked_own = st.button("Use my own model", icon=":material/code:", width="stretch")
            st.caption(OWN)
        st.caption(f"Everything is stored in `{resources.workspace().root}`.")
        st.page_link(HELP.script, label="How Scalebook works", icon=HELP.icon)
    if asks_first:
        state.clicks().mark_handled(ASK, done=False)
        if managing.has_unused():
            managing.ask_own_model(_ask_first)
        _ask_first()
    elif managing.asks_next():
        _ask_first()
    elif added:
        _add_examples()
    elif asked_new:
        managing.ask_new()
    elif asked_own:
        managing.ask_own_model()


def _ask_first() -> NoReturn:
    """Begin a question in a new notebook."""
    workspace = resources.workspace()
    try:
        stored = store.create(workspace, QUESTIONS)
    except FileExistsError:
        stored = notebooks.read(workspace.root / f"{QUESTIONS.lower()}.md")
    ask(stored)


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
KINDS = ("experiment", "search", "comparison", "claim", "answer", "broken")


def stand_at(name: str) -> None:
    """Scroll to a cell, once in each visit, so that later redraws do not move the page."""
    key = re.sub(r"[^a-zA-Z0-9_-]", "-", name.strip())  # as Streamlit makes a class of a key
    places = [f"st-key-cell-{kind}-{key}" for kind in KINDS]
    call = f"({SCRIPT.read_text(encoding='utf-8')})({json.dumps(places)}, {json.dumps(f'{state.visits()} {name}')})"
    with st.container(key="stand-at"):
        st.html(f"<script>{call.replace('</', '<' + chr(92) + '/')}</script>", unsafe_allow_javascript=True)
