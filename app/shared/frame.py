"""What every page shares: the last open notebook, notices of changes and ended runs, the question of trust."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from scalebook.app import resources, state
from scalebook.app.navigation import RUNS, SEARCH
from scalebook.app.serving.shell import CHARTS, library
from scalebook.app.shared import html, notebooks
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.widgets import code_block
from scalebook.training.base import Workspace, trust
from scalebook.training.jobs import end_notices, supervisor_handle
from scalebook.training.search import search_folder

LAST = "last-notebook"
NOTEBOOK_KEY = "notebook"
"""The query parameter that names a notebook."""


def last_notebook(wanted: str | None) -> NotebookChoice | None:
    """The notebook called `wanted`; without a name the last open one, else the first one.

    The session of the tab remembers it, and a cookie of the browser, since a plain link or a reload begins a new
    session.
    """
    workspace = resources.workspace()
    if wanted is not None:
        return notebooks.pick(workspace, wanted)
    last = state.recall(LAST, "") or unquote(st.context.cookies.get(_cookie(), ""))
    return (notebooks.pick(workspace, last) if last else None) or notebooks.pick(workspace, None)


def keep_last_notebook(choice: NotebookChoice) -> None:
    """Remember `choice` as the last open notebook."""
    state.remember(LAST, choice.name)
    cookie = f"{_cookie()}={quote(choice.name, safe='')}; path=/; SameSite=Strict"
    with st.container(key="keep-notebook"):
        st.html(f"<script>document.cookie = {json.dumps(cookie)};</script>", unsafe_allow_javascript=True)


def _cookie() -> str:
    """The cookie's name, one for each workspace, because all ports of a host share cookies."""
    root = str(resources.workspace().root)
    return f"scalebook-notebook-{hashlib.sha256(root.encode()).hexdigest()[:12]}"


def keep_notebook_address(path: str) -> None:
    """Put back the address's `notebook` where the browser came from Runs, by Back too: Runs has a filter of that name,
    and Streamlit takes a page's parameters for its own (1.67). `path`: that of the page."""
    context = get_script_run_ctx()
    if not state.just_entered() or path == RUNS.path or context is None or NOTEBOOK_KEY in st.query_params:
        return
    if named := parse_qs(context.query_string).get(NOTEBOOK_KEY):
        st.query_params[NOTEBOOK_KEY] = named[-1]


PULSE_EVERY_S = 2.0


def watch_changes(path: Path | None = None) -> None:
    """Rerun the page when the notebook or the list of runs has changed, for example by `scalebook notebook run`. Call
    it once, at the end of a page."""
    state.remember("pulse", notebooks.stamps(resources.workspace(), path))
    _beat(path)


@st.fragment(run_every=PULSE_EVERY_S)
def _beat(path: Path | None) -> None:
    if notebooks.stamps(resources.workspace(), path) != state.recall("pulse", []):
        st.rerun()


READING_EVERY_S = 0.5


def models_are_read() -> bool:
    """Whether models and strategies have been read; else draw which are being read, and rerun the page afterwards.

    Raises ConfigError, once, if they cannot be read.
    """
    if (error := resources.description_error()) is not None:
        raise error
    if resources.description_at_hand() is None:
        _wait_for_models()
        return False
    return True


@st.fragment(run_every=READING_EVERY_S)
def _wait_for_models() -> None:
    if not resources.reads_models():
        st.rerun()
    own = resources.workspace().settings.modules
    of = f", and those of {', '.join(own)}" if own else ""
    st.caption(
        f":material/hourglass_top: Reading Scalebook's models, data sets and strategies{of}. This takes a few "
        "seconds after the code has changed."
    )


ENDINGS_EVERY_S = 2.0
SUPERVISOR_EVERY_S = 5.0
ENDINGS_SEEN = "endings-seen"


def watch_endings() -> None:
    """Tell the browser which runs and searches end (`bell.js`), from the start of the session on, and warn of a
    supervisor that does nothing. Call it once in each run of the frame."""
    with st.container(key="endings"):
        _tell_endings()
    _warn_of_silence()


@st.fragment(run_every=ENDINGS_EVERY_S)
def _tell_endings() -> None:
    before: int | None = state.recall(ENDINGS_SEEN, None)
    ended, now = end_notices.since(resources.workspace(), before)
    state.remember(ENDINGS_SEEN, now)
    html.draw("".join(_ending_html(ending) for ending in ended) or "<span></span>")


@st.fragment(run_every=SUPERVISOR_EVERY_S)
def _warn_of_silence() -> None:
    if silent := supervisor_handle.silence(resources.workspace()):
        st.warning(f"Nothing starts or stops, because {silent}.", icon=":material/warning:")


def _ending_html(ending: end_notices.Ending) -> str:
    url = RUNS.url(run=ending.id) if ending.kind == "run" else SEARCH.url(search=ending.id)
    name = f"{ending.id}-{ending.at:.0f}"
    return f'<span class="sb-ending" data-id="{escape(name)}" data-url="{escape(url)}">{escape(ending.text)}</span>'


@dataclass(frozen=True)
class TrustQuestion:
    """What trusting a folder would allow: to import its own modules (name -> file), and to run its jobs and searches,
    which were not submitted here.

    `notified`: whom `[notify]` would inform, in words.
    """

    modules: Mapping[str, str]
    jobs: int
    searches: int
    notified: Sequence[str] = ()

    def lines(self) -> list[str]:
        """The items as plain text, because names and paths come from the folder."""
        lines = [f"module {name}, from {source}" for name, source in self.modules.items()]
        if self.jobs:
            which = "jobs that were" if self.jobs > 1 else "job that was"
            lines.append(f"{self.jobs} waiting {which} not submitted here")
        if self.searches:
            which = "searches that were" if self.searches > 1 else "search that was"
            lines.append(f"{self.searches} open {which} not submitted here")
        return [*lines, *self.notified]


def trust_question(workspace: Workspace, reasons: Mapping[str, str]) -> TrustQuestion | None:
    """The question of trust; None for a folder that is trusted, or has nothing to allow.

    `reasons`: why each waiting job waits.
    """
    if trust.trusted(workspace):
        return None
    searches = sum(search.result() is None and not search.may_run() for search in search_folder.all_searches(workspace))
    new = sum(reason == trust.FOUND for reason in reasons.values())
    question = TrustQuestion(trust.importable(workspace), new, searches, trust.notified(workspace))
    return question if question.lines() else None


TRUST_WORDS = (
    "**This folder wants to run its own code.** Such code can do anything that you can do, so read it "
    "first if "
    "somebody else wrote it. Until you trust the folder, its notebooks can use only Scalebook's classes."
)


def ask_trust() -> None:
    """Draw the question whether to trust the folder, if there is one."""
    workspace = resources.workspace()
    question = trust_question(workspace, resources.waiting_reasons())
    if question is None:
        return
    with st.container(border=True):
        st.markdown(f":material/shield: {TRUST_WORDS}")
        code_block("\n".join(question.lines()), wrap=True)
        if st.button("Trust this folder", key="trust-folder"):
            trust.trust(workspace)
            resources.look_anew()
            supervisor_handle.ensure(workspace)
            state.show_message("This folder is now trusted.")
            st.rerun()


PRELOAD_AFTER_S = 2.0


def preload_charts() -> None:
    """Let the browser load the chart library while a form is filled in, so that the first curve after Run appears 1 s
    earlier. Call it at the end of a page with a form.

    A script does it, not a fragment with a timer: a timer's request that is sent before Run leads to another page is
    answered after it, and Streamlit may show a blank page ("Bad delta path index").
    """
    file = library(CHARTS)
    if file is not None:
        load = f"setTimeout(() => import('/static/js/{file.name}'), {1000 * PRELOAD_AFTER_S:.0f})"
        with st.container(key="preload"):
            st.html(f"<script>{load}</script>", unsafe_allow_javascript=True)
