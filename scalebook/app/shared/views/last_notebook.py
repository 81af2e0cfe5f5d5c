"""The notebook that was open last: where the menu leads back to.

A tab's session remembers it, and a cookie of this browser does, because a plain link or a reload begins a new session.
"""

import hashlib
import json
from urllib.parse import quote, unquote

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.shared.services import notebooks
from scalebook.app.shared.services.notebooks import NotebookChoice

KEY = "last-notebook"


def pick(wanted: str | None) -> NotebookChoice | None:
    """The notebook called `wanted`; without a name the one that was open last, else the first one."""
    workspace = resources.workspace()
    if wanted is not None:
        return notebooks.pick(workspace, wanted)
    last = state.recall(KEY, "") or unquote(st.context.cookies.get(_cookie(), ""))
    return (notebooks.pick(workspace, last) if last else None) or notebooks.pick(workspace, None)


def keep(choice: NotebookChoice) -> None:
    """This one is open now."""
    state.remember(KEY, choice.name)
    said = f"{_cookie()}={quote(choice.name, safe='')}; path=/; SameSite=Strict"
    with st.container(key="keep-notebook"):
        st.html(f"<script>document.cookie = {json.dumps(said)};</script>", unsafe_allow_javascript=True)


def _cookie() -> str:
    """One for each workspace, because all ports of a host share cookies."""
    root = str(resources.workspace().root)
    return f"scalebook-notebook-{hashlib.sha256(root.encode()).hexdigest()[:12]}"
