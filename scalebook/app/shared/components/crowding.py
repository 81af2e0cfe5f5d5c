"""What stands beside **Run** where a run asks for far more than the machine has."""

import streamlit as st


def confirmed(words: str, key: str) -> bool:
    """Whether it may be run: nothing speaks against it ("" as `words`), or the person has said that it is meant."""
    if not words:
        return True
    st.warning(words, icon=":material/groups:")
    return st.checkbox("Run it all the same", key=key)
