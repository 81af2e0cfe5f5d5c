"""What is better of a metric: said where it is a guess, with a button that turns it, and chosen in a form."""

from typing import Final

import streamlit as st

from scalebook.app.shared.components import press
from scalebook.training.tracking.directions import GOALS, Direction, Goal

WORDS: Final[dict[Goal, str]] = {"min": "lower", "max": "higher"}


def draw(metric: str, direction: Direction, key: str, shown: str = "", said: bool = False) -> Goal | None:
    """What a person says is better, where the button was pressed; nothing is drawn where nobody has to guess.

    `said`: also where a person has said it, so that it can be turned back. Who has acted settles `key`.
    """
    if not (direction.guessed or (said and direction.source == "said")):
        return None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"direction-{key}"):
        st.caption(f"{metric}: {direction.words}", width="content")
        label = f"{WORDS[direction.other].capitalize()} is better"
        under = f"{shown} {direction.words}"  # turned back it is another click, not the same one again
        turned = press.button(label, key, under, type="tertiary", icon=":material/swap_vert:")
        return direction.other if turned else None


def choose(known: Direction, said: Goal | None, key: str) -> Direction:
    """As a form has it: what is known, or what the form says. Where something else becomes known, by another choice
    in the form, it begins with that."""
    before: Goal = said or ("min" if known.lower else "max")
    goal = st.segmented_control(
        "Better", GOALS, default=before, required=True, key=f"{key}-{known.other}", format_func=WORDS.__getitem__
    )
    if said is None and known.source != "said" and (goal == "min") == known.lower:
        if known.guessed:
            st.caption("A guess: neither config nor metric says so.")
        return known
    return Direction(goal == "min", "said")
