"""Writing a notebook from the page: one way for all edits, and the dialog for when somebody else wrote meanwhile."""

from collections.abc import Callable

import streamlit as st

from scalebook.app import state
from scalebook.app.shared.services import notebooks
from scalebook.training.errors import ConfigError
from scalebook.training.notebook import store
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.store import EditedMeanwhile, Stored

CONFLICT = "conflict"


def write(stored: Stored, change: Callable[[Notebook], Notebook], said: str = "Saved.") -> Stored | None:
    """Apply `change` to the notebook as it was seen, and save; None when it could not be, which is then on the page.

    A file edited meanwhile is never overwritten: `show_conflict` will offer both.
    """
    try:
        changed = store.save(stored, change(stored.notebook))
    except EditedMeanwhile as conflict:
        state.remember(CONFLICT, conflict)
        return None
    except ConfigError as error:
        state.say(str(error), ":material/error:")
        return None
    if said:
        state.say(said)
    return changed


def show_conflict() -> None:
    """The dialog, when a write has met an edit of somebody else. A run of the page can open one dialog only."""
    conflict: EditedMeanwhile | None = state.recall(CONFLICT, None)
    if conflict is not None:
        _dialog(conflict)


@st.dialog("This notebook was edited meanwhile", width="large", dismissible=False)
def _dialog(conflict: EditedMeanwhile) -> None:
    mine, theirs = conflict.mine, conflict.theirs
    st.markdown(
        f"`{theirs.path.name}` has changed on disk since you opened it here. Nothing has been overwritten. "
        "This is what your version would change in it:"
    )
    st.code(notebooks.difference(mine.text, theirs.notebook.text), language="diff", height=320)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep the file", help="Your edit is dropped."):
            _close("Kept the file as it is.")
        if st.button("Keep both", help="Yours is written to a new notebook beside it."):
            path = notebooks.save_beside(theirs, mine)
            _close(f"Yours is in {path.name}.")
        if st.button("Use mine", type="primary", help="The edit on disk is dropped."):
            try:
                notebooks.overwrite(theirs, mine)
            except EditedMeanwhile as again:
                state.remember(CONFLICT, again)
                st.rerun()
            _close("Yours is in the file now.")


def _close(said: str) -> None:
    state.take(CONFLICT, None)
    state.say(said)
    st.rerun()
