"""What speaks against running a config: its problems, and that it asks for far more than the machine has."""

from collections.abc import Sequence

import streamlit as st

from scalebook.training.errors import Problem


def draw(problems: Sequence[Problem]) -> None:
    """Errors in red, warnings in yellow; those that no field of a form can show."""
    for problem in problems:
        (st.error if problem.severity == "error" else st.warning)(str(problem))


def confirmed(words: str, key: str) -> bool:
    """Whether it may be run: nothing speaks against it ("" as `words`), or the person has said that it is meant."""
    if not words:
        return True
    st.warning(words, icon=":material/groups:")
    return st.checkbox("Run anyway", key=key)
