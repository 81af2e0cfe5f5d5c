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
    return attempt(lambda: store.save(stored, change(stored.notebook)), said)


def attempt(act: Callable[[], Stored], said: str) -> Stored | None:
    """Any writing of a notebook, as `write`."""
    try:
        changed = act()
    except EditedMeanwhile as conflict:
        state.remember(CONFLICT, conflict)
        return None
    except ConfigError as error:
        state.say(str(error), ":material/error:")
        return None
    if said:
        state.say(said)
    return changed


def in_conflict() -> bool:
    """Whether a write has met an edit of somebody else, and nobody has decided yet."""
    return state.recall(CONFLICT, None) is not None


def show_conflict() -> None:
    """The dialog, when a write has met an edit of somebody else. A run of the page can open one dialog only."""
    conflict: EditedMeanwhile | None = state.recall(CONFLICT, None)
    if conflict is not None:
        _dialog(conflict)


@st.dialog("This notebook was edited meanwhile", width="large", dismissible=False)
def _dialog(conflict: EditedMeanwhile) -> None:
    mine, theirs = conflict.mine, conflict.on_disk
    st.markdown(
        f"`{theirs.path.name}` has changed on disk since you opened it here. Nothing has been overwritten. "
        "This is what your version would change in it:"
    )
    st.code(notebooks.difference(mine.text, theirs.notebook.text), language="diff", height=320)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep the file", help="Yours stays among the earlier states."):
            store.give_up(theirs, mine)
            _close("Kept the file as it is. Yours is among its earlier states.")
        if st.button("Keep both", help="Yours is written to a new notebook beside it."):
            path = store.save_beside(theirs, mine)
            _close(f"Yours is in {path.name}.")
        if st.button("Use mine", type="primary", help="The edit on disk stays among the earlier states."):
            try:
                store.save(theirs, mine)
            except EditedMeanwhile as again:
                state.remember(CONFLICT, again)
                st.rerun()
            _close("Yours is in the file now.")


def _close(said: str) -> None:
    state.take(CONFLICT, None)
    state.say(said)
    st.rerun()
