"""What has ended while a page is open, for the browser to tell of (`bell.js`); and a supervisor that does nothing."""

from html import escape

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import RUNS, SEARCH
from scalebook.app.shared.components import html
from scalebook.training.jobs import endings
from scalebook.training.jobs.endings import Ending
from scalebook.training.jobs.supervising import silence

EVERY_S = 2.0
SUPERVISOR_EVERY_S = 5.0
KEPT = "endings-seen"


def watch() -> None:
    """Once a run of the frame. Begins with what ends after the session has."""
    with st.container(key="endings"):
        _look()
    _warn()


@st.fragment(run_every=EVERY_S)
def _look() -> None:
    before: int | None = state.recall(KEPT, None)
    ended, now = endings.since(resources.workspace(), before)
    state.remember(KEPT, now)
    html.draw("".join(_words(ending) for ending in ended) or "<span></span>")


@st.fragment(run_every=SUPERVISOR_EVERY_S)
def _warn() -> None:
    if silent := silence(resources.workspace()):
        st.warning(f"Nothing starts or stops: {silent}.", icon=":material/warning:")


def _words(ending: Ending) -> str:
    url = RUNS.url(run=ending.id) if ending.kind == "run" else SEARCH.url(search=ending.id)
    name = f"{ending.id}-{ending.at:.0f}"
    return f'<span class="sb-ending" data-id="{escape(name)}" data-url="{escape(url)}">{escape(ending.text)}</span>'
