"""What the notebook's page consists of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import press_button

HeadIntent = Literal[
    "undo", "history", "new notebook", "new experiment", "rename", "duplicate", "delete", "deleted", "own model"
]
UNDO = "notebook-undo"
WHOLE: dict[str, HeadIntent] = {"Rename": "rename", "Duplicate": "duplicate", "Delete": "delete"}
OWN_MODEL: dict[str, HeadIntent] = {"Use my own model": "own model"}
DELETED: dict[str, HeadIntent] = {"Deleted notebooks": "deleted"}


@dataclass(frozen=True)
class NotebookHead:
    """What was asked for in the notebook's head."""

    picked: str | None
    intent: HeadIntent | None


def notebook_head(
    choices: Sequence[NotebookChoice],
    chosen: NotebookChoice | None,
    undo: str | None,
    export: Callable[[], str] | None = None,
    *,
    whole: bool = False,
    deleted: bool = False,
) -> NotebookHead:
    """Picker, Undo and History, Export, a menu, New notebook, New experiment; in an empty folder the menu alone.

    `undo` tells the state that Undo would go back from; None where it has nothing to go back to. `export` makes the
    HTML that is downloaded, when it is asked for; None where the notebook cannot be read. `whole`:
    it can be renamed, duplicated and deleted now; `deleted`: some can be brought back.
    """
    intent: HeadIntent | None = None
    picked = chosen.name if chosen else None
    left, right = st.columns([1, 1], vertical_alignment="center")
    with left:
        if choices:
            titles = {choice.name: choice.label for choice in choices}
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
        if chosen:
            if press_button(
                "Undo", UNDO, undo or "", icon=":material/undo:", type="tertiary", disabled=undo is None,
                help="Undo the last saved change.",
            ):  # fmt: skip
                intent = "undo"
            if st.button("History", key="notebook-history", icon=":material/history:", type="tertiary",
                         help="The last 50 states of this notebook, to view or restore."):  # fmt: skip
                intent = "history"
        if chosen and export is not None:
            st.download_button(
                "Export", export, f"{chosen.name}.html", "text/html", key="notebook-export", on_click="ignore",
                icon=":material/download:", type="tertiary",
                help="One HTML file with text, configs, results and charts. Opens anywhere, prints well.",
            )  # fmt: skip
        menu = {**(WHOLE if whole else {}), **(OWN_MODEL if choices else {}), **(DELETED if deleted else {})}
        if menu and (
            entry := st.menu_button("More", list(menu), key="notebook-more", type="tertiary",
                                    icon=":material/more_horiz:")
        ):  # fmt: skip
            intent = menu[entry]
        if choices and st.button("New notebook", icon=":material/note_add:", type="secondary" if chosen else "primary"):
            intent = "new notebook"
        if chosen and st.button("New experiment", icon=":material/add:", type="primary"):
            intent = "new experiment"
    return NotebookHead(picked, intent)
