"""Buttons whose click is acted on once, whatever else happens on the page meanwhile."""

from typing import Any

import streamlit as st

from scalebook.app import state


def button(label: str, key: str, shown: str = "", **looks: Any) -> bool:
    """Whether a click on it waits to be acted on; who has acted calls `state.clicks().settle(key)`, before a rerun.

    `shown` as in `state.Clicks`; `looks` are those of `st.button`.
    """
    clicks = state.clicks()
    st.button(label, key=key, on_click=clicks.note, args=(key, shown), **looks)
    return clicks.waits(key, shown)
