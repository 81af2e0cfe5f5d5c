"""Earlier states of a notebook: one step back, or a look at all of them and a return to any."""

from functools import lru_cache, partial
from itertools import pairwise
from typing import NoReturn

import streamlit as st

from scalebook.app import state
from scalebook.app.notebook.widgets import UNDO
from scalebook.app.shared import dialogs, notebooks, notes
from scalebook.app.shared.dialogs import attempt
from scalebook.app.shared.widgets import press_button
from scalebook.app.shared.words import ago
from scalebook.training.notebook import history, store
from scalebook.training.notebook.changes import changes
from scalebook.training.notebook.history import PastState
from scalebook.training.notebook.store import Stored

MOST_TOLD = 3
"""Changes of one state that are told of."""


def undo_from(stored: Stored | None) -> str | None:
    """The stamp of the file that an undo would start from; None where there is no earlier state, or while a note is
    edited."""
    if stored is None or notes.opened_here(stored.path) is not None:
        return None
    return stored.stamp if history.previous(stored.path, stored.notebook.text.encode("utf-8")) is not None else None


def undo(stored: Stored) -> None:
    """To the state before."""
    back = history.previous(stored.path, stored.notebook.text.encode("utf-8"))
    if back is not None:
        attempt(
            lambda: store.restore(stored, back), f"Undone: the notebook is back to its state of {ago(back.changed_s)}."
        )
    state.clicks().settle(UNDO, done=False)
    st.rerun()


def ask(stored: Stored) -> NoReturn:
    """Opens the dialog."""
    dialogs.ask("History", partial(_draw, stored), "large")


def _draw(stored: Stored) -> None:
    """The kept states except the present one, newest first, and the difference that returning to one would make."""
    now = stored.notebook.text
    every = history.states(stored.path)
    before = dict(pairwise(every))
    kept = [state for state in every if state.back is None]
    kept = [kept_state for kept_state in kept if kept_state.content() != now.encode("utf-8")]
    if not kept:
        st.markdown("No earlier state yet: each save adds one.")
        return
    chosen = st.selectbox("State", kept, format_func=lambda one: _words(one, before.get(one)), key="earlier-state")
    text = chosen.content().decode("utf-8", "replace")
    st.caption("The changes that restoring it would make to the file. The present state stays in this list.")
    st.code(notebooks.difference(text, now, f"state {chosen.number}"), language="diff", height=320)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if press_button("Restore this state", "earlier-return", type="primary"):
            attempt(lambda: store.restore(stored, chosen), f"Restored the state of {ago(chosen.changed_s)}.")
            state.clicks().settle("earlier-return")
            dialogs.close()
            st.rerun()


def _words(state_: PastState, before: PastState | None) -> str:
    """When it came, and what changed then."""
    what = _changes(state_, before) if before else "the oldest one"
    return f"{state_.number}, {ago(state_.changed_s)}: {what}"


@lru_cache(maxsize=4 * history.MOST)
def _changes(state_: PastState, before: PastState) -> str:
    """A state that is kept never changes."""
    texts = (one.content().decode("utf-8", "replace") for one in (before, state_))
    found = changes(*texts)
    more = f", {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return "; ".join(found[:MOST_TOLD]) + more
