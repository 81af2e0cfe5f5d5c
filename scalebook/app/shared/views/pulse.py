"""Looks every few seconds whether the notebook or the list of runs has changed behind the page, and draws it anew."""

from pathlib import Path

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared.services import notebooks

EVERY_S = 2.0


def watch(path: Path | None = None) -> None:
    """Once a page, at its end. A run that was submitted by `scalebook notebook run` then shows up by itself."""
    state.remember("pulse", notebooks.stamps(resources.workspace(), path))
    _beat(path)


@st.fragment(run_every=EVERY_S)
def _beat(path: Path | None) -> None:
    if notebooks.stamps(resources.workspace(), path) != state.recall("pulse", []):
        st.rerun()
