"""Standing at a cell of the notebook that the address names (`?cell=NAME`), when the page is shown."""

import json
import re

import streamlit as st

from scalebook.app import state
from scalebook.app.shared import style

SCRIPT = style.ASSETS / "arriving.js"
KINDS = ("experiment", "search", "comparison", "claim", "broken")


def stand_at(name: str) -> None:
    """Once a visit: what is drawn anew later does not move the page."""
    key = re.sub(r"[^a-zA-Z0-9_-]", "-", name.strip())  # as Streamlit makes a class of a key
    places = [f"st-key-cell-{kind}-{key}" for kind in KINDS]
    call = f"({SCRIPT.read_text(encoding='utf-8')})({json.dumps(places)}, {json.dumps(f'{state.visits()} {name}')})"
    with st.container(key="stand-at"):
        st.html(f"<script>{call.replace('</', '<' + chr(92) + '/')}</script>", unsafe_allow_javascript=True)
