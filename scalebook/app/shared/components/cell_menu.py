"""What can be done with any cell of a notebook beside its own buttons: its place, notes around it, its end."""

from collections.abc import Mapping
from typing import Final, Literal

import streamlit as st

Intent = Literal["up", "down", "note above", "note below", "delete"]
PLACES: Final[Mapping[str, Intent]] = {
    "Move up": "up",
    "Move down": "down",
    "Add a note above": "note above",
    "Add a note below": "note below",
}
ALL: Final[Mapping[str, Intent]] = {**PLACES, "Delete": "delete"}


def draw(name: str) -> Intent | None:
    """The menu of the cell `name`."""
    picked = st.menu_button("More", list(ALL), key=f"more-{name}", type="tertiary", icon=":material/more_horiz:")
    return ALL[picked] if picked else None
