"""Writing a notebook from a page; and dialogs, which stay open until they are answered."""

from collections.abc import Callable
from html import escape
from typing import Literal, NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared import html, notebooks
from scalebook.app.shared.widgets import press_button
from scalebook.training.base import ConfigError, one_line
from scalebook.training.notebook import (
    Note,
    Notebook,
    PastState,
    Stored,
    both_kept,
    edit,
    follow_renames,
    merged,
    store,
)

CONFLICT = "conflict"
DECIDED = "conflict-decided"
LONGEST_LABEL = 60
NEW = "Save mine as a new notebook"
MOST_MEANWHILE = 5
"""Other saves that one save is merged with, before the person must decide."""


def write(
    stored: Stored,
    change: Callable[[Notebook], Notebook],
    toast: str = "Saved.",
    decided: Callable[[], None] | None = None,
) -> Stored | None:
    """Apply `change` to the notebook as it was seen, save it, and show `toast`. None on a failure, which the page then
    shows.

    A file edited meanwhile is never overwritten: an edit of another cell is merged, else `show_conflict` asks.
    `decided` is called when the person has answered: until then keep what would be lost if the page were reloaded.
    """
    return attempt(lambda: _save(stored, change(stored.notebook)), toast, decided)


def _save(stored: Stored, mine: Notebook) -> Stored:
    """Save `mine`, merged with edits saved meanwhile; EditedMeanwhile if they cannot be merged."""
    seen, mine_now = stored, mine
    for _ in range(MOST_MEANWHILE):
        try:
            return _followed(seen, store.save(seen, mine_now))
        except store.EditedMeanwhile as conflict:
            both = merged(stored.notebook, mine, conflict.on_disk.notebook)
            if both is None:
                raise store.EditedMeanwhile(mine, conflict.on_disk, stored.notebook) from conflict
            seen, mine_now = conflict.on_disk, both
    return _followed(seen, store.save(seen, mine_now))


def restore(stored: Stored, past: PastState, toast: str) -> None:
    """Write an earlier state of the notebook again, like `write`."""
    attempt(lambda: _followed(stored, store.restore(stored, past)), toast)


def _followed(before: Stored, after: Stored) -> Stored:
    """`after`, once the runs of experiments that it renames have their new names."""
    try:
        follow_renames(resources.workspace(), resources.reader(), after.path.name, before.notebook, after.notebook)
    except ConfigError as error:
        state.show_message(str(error), ":material/error:")
    return after


def attempt(act: Callable[[], Stored], toast: str, decided: Callable[[], None] | None = None) -> Stored | None:
    """Call `act`, which writes a notebook, with the toast, the errors and `decided` of `write`."""
    try:
        changed = act()
    except store.EditedMeanwhile as conflict:
        state.remember(CONFLICT, conflict)
        state.remember(DECIDED, decided)
        return None
    except ConfigError as error:
        state.show_message(str(error), ":material/error:")
        return None
    if toast:
        state.show_message(toast)
    return changed


def in_conflict() -> bool:
    """Whether a write conflicts with another edit, and the person has not decided yet."""
    return state.recall(CONFLICT, None) is not None


def show_conflict() -> None:
    """Open the dialog about a conflicting edit, if there is one. A run of the page can open one dialog only."""
    conflict: store.EditedMeanwhile | None = state.recall(CONFLICT, None)
    if conflict is not None:
        _conflict_dialog(conflict)


@st.dialog("This notebook was edited elsewhere", width="large", dismissible=False)
def _conflict_dialog(conflict: store.EditedMeanwhile) -> None:
    mine, theirs = conflict.mine, conflict.on_disk
    st.markdown(
        f"`{theirs.path.name}` was saved elsewhere after you opened it here, and both edits change the same part. "
        "Nothing has been overwritten yet. Your version would change the file like this:"
    )
    st.code(notebooks.difference(mine.text, theirs.notebook.text), language="diff", height=320)
    both = both_kept(conflict.base, mine, theirs.notebook)
    adds = both is not None and both.text != theirs.notebook.text
    label, where = _keeping_both(both, mine, theirs.notebook) if both is not None and adds else (NEW, "")
    st.caption(f"{where} History keeps the version that you do not choose.".strip())
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep the file"):
            store.give_up(theirs, mine)
            _close_conflict("Kept the file. Your version is in History.")
        if st.button("Replace the file with mine"):
            _save_decided(theirs, mine, "The file now contains your version. The other edit is in History.")
        if both is None and st.button(NEW, type="primary"):
            path = store.save_beside(theirs, mine)
            _close_conflict(f"Your version is in {path.name}.")
        if both is not None and adds and st.button(label, key="keep-both", type="primary"):
            _save_decided(theirs, both, f"Both are in {theirs.path.name}.")


def _keeping_both(both: Notebook, mine: Notebook, theirs: Notebook) -> tuple[str, str]:
    """The label of the button that writes `both`, which has both versions, and where mine is then."""
    cells, their_cells = (
        [cell for cell in notebook.cells if not isinstance(cell, Note)] for notebook in (both, theirs)
    )
    if [cell.source.rstrip() for cell in cells] == [cell.source.rstrip() for cell in their_cells]:
        return "Keep both texts", "**Keep both texts**: your text is added after the other one, below a line."
    before = {cell.name for notebook in (mine, theirs) for cell in notebook.cells if not isinstance(cell, Note)}
    renamed = [cell.name for cell in cells if cell.name not in before]
    if not renamed:
        return "Keep both edits", "**Keep both edits**: your cells are added after the other ones."
    named = one_line(", ".join(renamed), LONGEST_LABEL)
    return f"Keep both, mine as {named}", "**Keep both**: your cell is added after the other one, with another name."


def _save_decided(theirs: Stored, notebook: Notebook, toast: str) -> None:
    """Save what the person has decided; asks again if the file was edited since the dialog was opened."""
    try:
        _followed(theirs, store.save(theirs, notebook))
    except store.EditedMeanwhile as again:
        state.remember(CONFLICT, again)
        st.rerun()
    _close_conflict(toast)


def _close_conflict(toast: str) -> None:
    decided: Callable[[], None] | None = state.pop(DECIDED, None)
    state.pop(CONFLICT, None)
    state.show_message(toast)
    if decided is not None:
        decided()
    st.rerun()


OPEN = "open-dialog"
Width = Literal["small", "large"]


def ask(title: str, draw: Callable[[], None], width: Width = "small") -> NoReturn:
    """Open a dialog. `draw` draws its content in each run of the page; to answer, it calls `close`, then reruns."""
    state.remember(OPEN, (title, draw, width))
    st.rerun()


def is_open() -> bool:
    """Whether a dialog is open."""
    return state.recall(OPEN, None) is not None


def close() -> None:
    state.pop(OPEN, None)


def show() -> None:
    """Draw the open dialog, at the end of a page; one about a conflicting edit comes first. A run can open one only."""
    opened: tuple[str, Callable[[], None], Width] | None = state.recall(OPEN, None)
    if in_conflict():
        show_conflict()
    elif opened is not None:
        title, draw, width = opened
        st.dialog(title, width=width, on_dismiss=close)(draw)()


def confirm_delete(
    stored: Stored, index: int, kind: str, name: str, stays: str, then: Callable[[], None] | None = None
) -> NoReturn:
    """Open the dialog that deletes cell `index`, the `kind` called `name`. `stays` says what is not deleted.

    `then` is called after the deletion.
    """

    def question() -> None:
        html.draw(f"This removes <b>{escape(name)}</b> from the notebook.")
        st.markdown(f"{stays} To restore it, use **Undo** above the notebook.".strip())
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Cancel", key="keep-cell"):
                close()
                st.rerun()
            if press_button("Delete", "delete-cell", stored.stamp, type="primary"):
                done = write(stored, lambda notebook: edit.remove(notebook, index), "Deleted. Undo restores it.")
                state.clicks().mark_handled("delete-cell")
                if done is not None and then is not None:
                    then()
                close()
                st.rerun()

    ask(f"Delete this {kind}?", question)
