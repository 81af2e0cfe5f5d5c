"""The only module that touches `st.session_state`. It holds drafts, ids and what is open, never results."""

import copy
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")


@dataclass
class ComposeDraft:
    """The draft of an experiment. `version` is part of every widget's key: a new version makes new widgets."""

    source: tuple[str, str] = ("", "")
    """Notebook and cell that the draft was loaded from; the cell is "" for a new experiment."""
    base: dict[str, Any] = field(default_factory=dict)
    """The config that the widgets start from."""
    config: dict[str, Any] = field(default_factory=dict)
    """The present config of the widgets."""
    name: str = ""
    repeats: int = 1
    version: int = 0
    text: str = ""
    """The typed text, if it is not a config; "" otherwise."""
    begun: str = ""
    """The `text` that the widgets start from."""
    left_at: float | None = None
    """When the draft was saved, in seconds since the epoch, if it comes from an earlier session or another tab."""


@dataclass
class SearchDraft:
    """The draft of a search. `version` as in ComposeDraft."""

    source: tuple[str, str, str] = ("", "", "")
    """Notebook, search cell ("" for a new search) and experiment of the page's address."""
    base: dict[str, Any] = field(default_factory=dict)
    """The body of the cell that the widgets start from."""
    body: dict[str, Any] = field(default_factory=dict)
    """The present body of the widgets."""
    name: str = ""
    step: int = 1
    version: int = 0
    left_at: float | None = None
    """As in ComposeDraft."""


CLICK_LASTS_S = 60.0


class Clicks:
    """Clicks that wait to be handled, so that none is lost and none counts twice.

    Streamlit drops a click where another rerun comes before the script has passed the button. It calls the button's
    callback all the same: `note` stores the click here; the page handles it in its next run, then calls
    `mark_handled`.
    `stamp` identifies the state of the page under the button: a click on an older state does nothing.
    """

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, float]] = {}
        self._settled: dict[str, str] = {}

    def note(self, key: str, stamp: str) -> None:
        """A button's callback. It touches no session state, where Streamlit might interrupt it."""
        self._noted[key] = stamp, time.monotonic()

    def waits(self, key: str, stamp: str) -> bool:
        """Whether a click with this `stamp` waits; a handled one does not."""
        if key not in self._noted:
            return False
        noted, noted_at = self._noted[key]
        if noted != stamp or time.monotonic() - noted_at > CLICK_LASTS_S or (stamp and self._settled.get(key) == stamp):
            del self._noted[key]
            return False
        return True

    def mark_handled(self, key: str, *, done: bool = True) -> None:
        """Mark the click as handled. With `done`, a second click with the same stamp does nothing."""
        stamp, _ = self._noted.pop(key, ("", 0.0))
        if done:
            self._settled[key] = stamp

    def start_over(self) -> None:
        """Take clicks on stamps that were handled before, when something is undone: the page is as it was then."""
        self._settled.clear()

    def forget(self) -> None:
        """Drop all waiting clicks, when another page is shown."""
        self._noted.clear()


def visit(page: str) -> None:
    """Note which page is shown. Widgets lose their values with their page; a draft is rebuilt on return."""
    entered = st.session_state.get("page") != page
    st.session_state["entered"] = entered
    if entered:
        st.session_state["visits"] = visits() + 1
    st.session_state["page"] = page
    if entered:
        clicks().forget()
        st.session_state.pop("kept.open-dialog", None)


def visits() -> int:
    """How many times a page has been entered; identifies a visit."""
    return int(st.session_state.get("visits", 0))


def clicks() -> Clicks:
    """This session's clicks."""
    clicks_: Clicks = st.session_state.setdefault("clicks", Clicks())
    return clicks_


def just_entered() -> bool:
    """Whether this is the page's first run since the browser came to it."""
    return bool(st.session_state.get("entered", True))


def draft() -> ComposeDraft:
    """This session's draft of an experiment."""
    draft_: ComposeDraft = st.session_state.setdefault("draft", ComposeDraft())
    return draft_


def reset_draft(
    source: tuple[str, str],
    config: dict[str, Any],
    name: str,
    repeats: int,
    text: str = "",
    left_at: float | None = None,
) -> ComposeDraft:
    """Begin a draft from `config`, with new widgets."""
    version = draft().version + 1
    st.session_state["draft"] = ComposeDraft(source, config, config, name, repeats, version, text, text, left_at)
    return draft()


def search_draft() -> SearchDraft:
    """This session's draft of a search."""
    draft_: SearchDraft = st.session_state.setdefault("search-draft", SearchDraft())
    return draft_


def reset_search_draft(
    source: tuple[str, str, str], body: dict[str, Any], name: str, step: int = 1, left_at: float | None = None
) -> SearchDraft:
    """Begin a draft from `body`, with new widgets."""
    version = search_draft().version + 1
    st.session_state["search-draft"] = SearchDraft(source, body, copy.deepcopy(body), name, step, version, left_at)
    return search_draft()


def remember(key: str, value: object) -> None:
    """Keep `value` (an id, an open editor) until the session ends or it is taken."""
    st.session_state[f"kept.{key}"] = value


def recall(key: str, default: T) -> T:
    value: T = st.session_state.get(f"kept.{key}", default)
    return value


def pop(key: str, default: T) -> T:
    """`recall`, then forget the value."""
    value: T = st.session_state.pop(f"kept.{key}", default)
    return value


def widget(key: str) -> Any:
    """The present value of the widget with this key, None before it is drawn."""
    return st.session_state.get(key)


def set_widget(key: str, value: object) -> None:
    """Set a widget's value; only before it is drawn in this run."""
    st.session_state[key] = value


def show_message(text: str, icon: str = ":material/check:") -> None:
    """Show a toast at the next drawing of a page, also after a change of page."""
    remember("toast", (text, icon))


def pop_message() -> tuple[str, str] | None:
    """Text and icon of the last `show_message`, once."""
    return pop("toast", None)
