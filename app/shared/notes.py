"""Notes: Markdown that is edited in place, with a draft until it is saved or discarded; and moving cells."""

import re
from functools import partial
from pathlib import Path

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared import dialogs, drafts, html, notebooks
from scalebook.app.shared.dialogs import in_conflict, write
from scalebook.app.shared.drafts import LeftDraft, NoteDraft
from scalebook.app.shared.widgets import draft_label, press_button
from scalebook.training.base import one_line, trust
from scalebook.training.notebook import Note, Notebook, Stored, edit
from scalebook.training.notebook.claims import written_tables

PICTURE = re.compile(r"!\[[^\]]*\]\(\s*<?\w+://")  # a picture on another server
EDITING = "editing"  # the key of the cell whose editor is open, or `new-INDEX`
EDITED = "edited"  # the notebook as the person saw it then, to notice an edit meanwhile
BEGUN = "begun"  # the text that the editor was opened with
LEFT = "left-notes"  # the drafts of this notebook at the start of the page
LONGEST_NAME = 60
MENU = {"Move up": -1, "Move down": 1, "Delete": 0}
"""The entries of the menu, with the number of places that a cell moves."""
HINT = "Enter text here. You can use Markdown: # headings, - lists, [links](https://...), $formulas$."
FIRST_HINT = f"What is the question, and what do you expect? {HINT}"


def show(stored: Stored, index: int, note: Note) -> None:
    """Draw the note with its buttons, or its editor."""
    key = notebooks.key(note, index)
    if state.recall(EDITING, "") == key:
        _editor(key)
        return
    with st.container(key=f"note-{key}"):
        st.markdown(written_tables.without_marks(note.source))
        _results(stored, index, note)
        if PICTURE.search(note.source) and not trust.trusted(resources.workspace()):
            st.caption("Pictures from other sites are blocked until you trust this folder (`scalebook ui --trust`).")
        with st.container(key=f"edit-note-{key}", horizontal=True, gap="small"):
            if press_button("Edit", f"edit-{key}", icon=":material/edit:"):
                state.clicks().mark_handled(f"edit-{key}")
                _open(stored, key, note.source)
            picked = st.menu_button("More", list(MENU), key=f"more-{key}", icon=":material/more_horiz:")
    if picked == "Delete":
        dialogs.confirm_delete(stored, index, "note", _name(note.source), "")
    if picked:
        write(stored, partial(notebooks.move, index=index, by=MENU[picked]), toast="")
        st.rerun()


def _results(stored: Stored, index: int, note: Note) -> None:
    """Draw the problems of the results written in a note, and a button that writes the present results."""
    regions = [region for region in written_tables.regions(stored.notebook) if region.cell == index]
    if not regions:
        return
    tables, key = resources.result_tables(stored), f"write-results-{notebooks.key(note, index)}"
    problems = [issue for issue in written_tables.problems(stored.notebook, tables) if issue.cell == index]
    for problem in problems:
        st.caption(f"{problem.cell_name.capitalize()} {problem.problem.message}.")
    is_recorded = any(tables[region.name].runs for region in regions if region.name in tables)
    if (
        problems
        and is_recorded
        and press_button("Write results", key, stored.stamp, type="tertiary", icon=":material/table:")
    ):
        done = write(
            stored, lambda notebook: written_tables.fill(notebook, tables), "Wrote the results of the current runs."
        )
        state.clicks().mark_handled(key, done=done is not None)
        st.rerun()


def opened_here(path: Path) -> Stored | None:
    """The notebook in `path` as the open editor was opened on it; None if no editor is open on it."""
    opened: Stored | None = state.recall(EDITED, None)
    return opened if opened is not None and opened.path == path else None


def come_back(stored: Stored) -> None:
    """Close an open editor, whose draft stays, if the notebook was changed on another page meanwhile."""
    opened = opened_here(stored.path)
    if state.just_entered() and opened is not None and opened.stamp != stored.stamp:
        _stop_editing()


def look_for_drafts(stored: Stored) -> None:
    """Load the drafts of notes, once in each run of the page, before its cells."""
    state.remember(LEFT, drafts.of_notebook(resources.workspace(), NoteDraft, stored.path.stem))


def show_new(stored: Stored, index: int) -> None:
    """Draw the editor of a new note before cell `index`, if it is open, and the drafts that belong there."""
    key = f"new-{index}"
    if state.recall(EDITING, "") == key:
        _editor(key)
    left: list[LeftDraft[NoteDraft]] = state.recall(LEFT, [])
    for note in drafts.notes_at(left, stored.notebook, index):
        if note.draft != _draft_at_work():
            _show_left(stored, index, note)


def _show_left(stored: Stored, index: int, left: LeftDraft[NoteDraft]) -> None:
    """Draw a draft of an earlier session or another tab, with buttons to continue or discard it."""
    draft = left.draft
    in_place = index < len(stored.notebook.cells) and stored.notebook.cells[index].source == draft.before
    what = "the note below" if in_place else "a note that has since changed" if draft.before else "a new note"
    choice = draft_label(left.written_s, what, key=f"{index}-{abs(hash(draft.before)) % 10**8}", text=draft.text)
    if choice == "discard":
        _discard(draft)
        st.rerun()
    if choice == "continue":
        if not in_place:  # goes on as a new note
            _discard(draft)
        _open(stored, notebooks.key(stored.notebook.cells[index], index) if in_place else f"new-{index}", draft.text)


def _discard(draft: NoteDraft) -> None:
    drafts.discard(resources.workspace(), NoteDraft, draft.notebook, draft.which)


def add(stored: Stored, index: int) -> None:
    """Open an editor for a new note before cell `index`; the file changes only when it is saved."""
    _open(stored, f"new-{index}", "")


def begin_note(stored: Stored) -> None:
    """Open the editor of a first note, which the page of the new notebook then draws."""
    _remember(stored, "new-0", "")


def _remember(stored: Stored, key: str, text: str) -> None:
    state.remember(EDITING, key)
    state.remember(EDITED, stored)
    state.remember(BEGUN, text)


def _open(stored: Stored, key: str, text: str) -> None:
    _remember(stored, key, text)
    st.rerun()


def _at_work() -> tuple[Stored, int, str, bool] | None:
    """The open editor: notebook when it was opened, index of the cell, its text, whether it is new. None if closed."""
    opened: Stored | None = state.recall(EDITED, None)
    key = state.recall(EDITING, "")
    if opened is None or not key:
        return None
    if key.startswith("new-"):
        return opened, int(key.removeprefix("new-")), "", True
    index = next(i for i, cell in enumerate(opened.notebook.cells) if notebooks.key(cell, i) == key)
    return opened, index, opened.notebook.cells[index].source, False


def _draft_at_work() -> NoteDraft | None:
    """The saved draft of the open editor."""
    at_work = _at_work()
    if at_work is None:
        return None
    same = _draft(*at_work[:3], "")
    left = drafts.load(resources.workspace(), NoteDraft, same.notebook, same.which)
    return left.draft if left else None


def _draft(opened: Stored, index: int, before: str, text: str) -> NoteDraft:
    """The draft of cell `index`, or of a new note before it if `before` is ""."""
    around = drafts.around_note(opened.notebook, index)
    return NoteDraft(opened.path.stem, index, before, text, *around)


def _editor(key: str) -> None:
    at_work = _at_work()
    assert at_work is not None, "the session stores the edited note and its draft together"
    opened, index, before, new = at_work
    aside = _draft_at_work()
    if state.just_entered() and aside is not None:  # back from another page, which has taken the widget away
        state.remember(BEGUN, aside.text)
    begun = state.recall(BEGUN, before)
    with st.container(border=True, key=f"editor-{key}"):
        height = min(600, max(140, 26 * (begun.count("\n") + 3)))
        typed, preview = st.columns(2, gap="medium")
        with typed:
            text = st.text_area(
                "Markdown", begun, height=height, key=f"text-{key}", label_visibility="collapsed",
                placeholder=HINT if opened.notebook.cells else FIRST_HINT,
            )  # fmt: skip
        with preview, st.container(key="note-preview"):
            st.markdown(text if text.strip() else ":gray[Preview]")
        # While nothing has changed Esc may close it. Always drawn: what comes below must keep its place on the page.
        html.draw(f'<span class="{"sb-unchanged" if text == before else "sb-changed"}"></span>')
        draft = _draft(opened, index, before, text)
        if text not in (before, aside.text if aside else before):
            drafts.save(resources.workspace(), draft)
        with st.container(horizontal=True):
            if press_button("Save", f"save-{key}", type="primary"):
                done = _finish(draft, opened, new)
                state.clicks().mark_handled(f"save-{key}", done=done)
                if done and in_conflict():  # the draft stays until the person has decided: the page may be reloaded
                    _stop_editing()
                    st.rerun()
                if done:
                    _close(draft)
            if st.button("Cancel", key=f"cancel-{key}"):
                _close(draft)
            if not new and st.button("Delete", key=f"delete-{key}", type="tertiary"):
                dialogs.confirm_delete(opened, index, "note", _name(before), "", then=lambda: _forget(draft))
        st.caption("Ctrl+Enter or Ctrl+S saves; Esc closes a note that has not changed.")


def _name(source: str) -> str:
    """A name for a note: its first words."""
    first = next((line for line in source.splitlines() if line.strip()), "")
    return one_line(first.lstrip("# ").strip() or "This note", LONGEST_NAME)


def _finish(draft: NoteDraft, opened: Stored, new: bool) -> bool:
    """Save the note; True if its text is in the file, or in the dialog about a conflicting edit."""
    text = draft.text if draft.text.endswith("\n") else f"{draft.text}\n"

    def change(notebook: Notebook) -> Notebook:
        if new:
            return edit.insert_note(notebook, draft.index, f"{text}\n") if text.strip() else notebook
        return edit.replace_note(notebook, draft.index, text)

    toast = "Saved." if not new or text.strip() else ""
    return write(opened, change, toast, decided=lambda: _discard(draft)) is not None or in_conflict()


def _forget(draft: NoteDraft) -> None:
    _discard(draft)
    _stop_editing()


def _stop_editing() -> None:
    for key in (EDITING, EDITED, BEGUN):
        state.pop(key, None)


def _close(draft: NoteDraft) -> None:
    _forget(draft)
    st.rerun()


def place(intent: str, stored: Stored, index: int) -> None:
    """Move cell `index`, or open a new note beside it, as `CELL_PLACES` offers; other intents do nothing."""
    if intent in ("up", "down"):
        write(stored, partial(notebooks.move, index=index, by=-1 if intent == "up" else 1), toast="")
    elif intent == "note above":
        add(stored, index)
    elif intent == "note below":
        add(stored, index + 1)
