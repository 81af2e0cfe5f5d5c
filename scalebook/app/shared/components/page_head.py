"""The first row of a page: what it is, and the one thing to do here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from scalebook.app.shared.services.notebooks import NotebookChoice


@dataclass(frozen=True)
class NotebookHead:
    """What was asked for in the notebook's head."""

    picked: str | None
    intent: Literal["new notebook", "new experiment"] | None


def notebook(choices: Sequence[NotebookChoice], chosen: NotebookChoice | None) -> NotebookHead:
    """Picker, New notebook, New experiment."""
    intent: Literal["new notebook", "new experiment"] | None = None
    picked = chosen.name if chosen else None
    left, right = st.columns([1, 1], vertical_alignment="center")
    with left:
        if choices:
            titles = {one.name: one.label for one in choices}
            names = list(titles)
            picked = st.selectbox(
                "Notebook",
                names,
                names.index(picked) if picked else None,
                format_func=lambda name: titles.get(name, name),
                label_visibility="collapsed",
                key=f"picker.{picked}",
                placeholder="Choose a notebook",
            )
    with right, st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("New notebook", icon=":material/note_add:", type="secondary" if chosen else "primary"):
            intent = "new notebook"
        if chosen and st.button("New experiment", icon=":material/add:", type="primary"):
            intent = "new experiment"
    return NotebookHead(picked, intent)


def title(text: str, about: str = "") -> None:
    """A page's heading and a line on what it shows."""
    st.title(text)
    if about:
        st.caption(about)
