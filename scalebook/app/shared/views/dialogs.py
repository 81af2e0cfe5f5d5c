"""Dialogs that stay open until they are answered: a page that is drawn anew behind one does not close it."""

from collections.abc import Callable
from typing import Literal, NoReturn

import streamlit as st

from scalebook.app import state
from scalebook.app.shared.views import writing

OPEN = "open-dialog"
Width = Literal["small", "large"]


def ask(title: str, draw: Callable[[], None], width: Width = "small") -> NoReturn:
    """Open it; `draw` fills it each time, and calls `close` before the rerun with which it answers."""
    state.remember(OPEN, (title, draw, width))
    st.rerun()


def is_open() -> bool:
    """Whether one waits for its answer."""
    return state.recall(OPEN, None) is not None


def close() -> None:
    state.take(OPEN, None)


def show() -> None:
    """At the end of a page: the one about an edit meanwhile, or the one that was opened. A run can open one only."""
    opened: tuple[str, Callable[[], None], Width] | None = state.recall(OPEN, None)
    if writing.in_conflict():
        writing.show_conflict()
    elif opened is not None:
        title, draw, width = opened
        st.dialog(title, width=width, on_dismiss=close)(draw)()
