"""The only module that touches `st.session_state`: drafts, ids and what is open, never results."""

import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")


@dataclass
class ComposeDraft:
    """What the form is being filled with. `version` is part of every widget's key: a new one makes all widgets new."""

    source: tuple[str, str] = ("", "")
    """Notebook and cell that it was loaded from; the cell is "" for a new experiment."""
    base: dict[str, Any] = field(default_factory=dict)
    """The config that the widgets start from."""
    config: dict[str, Any] = field(default_factory=dict)
    """The config as the widgets say now."""
    name: str = ""
    repeats: int = 1
    version: int = 0


@dataclass
class SearchDraft:
    """A search that is being set up. `version` is part of every widget's key, as in ComposeDraft."""

    source: tuple[str, str, str] = ("", "", "")
    """Notebook, search cell ("" for a new one) and the experiment that it was begun from."""
    base: dict[str, Any] = field(default_factory=dict)
    """The body of the cell that the widgets start from."""
    body: dict[str, Any] = field(default_factory=dict)
    """The body as the widgets say now."""
    name: str = ""
    step: int = 1
    version: int = 0


def visit(page: str) -> None:
    """Note which page is shown. Widgets' values do not outlive their page; a draft is rebuilt when one comes back."""
    st.session_state["entered"] = st.session_state.get("page") != page
    st.session_state["page"] = page


def just_entered() -> bool:
    """Whether this is the first run of the page since another one was shown (or since the browser opened it)."""
    return bool(st.session_state.get("entered", True))


def draft() -> ComposeDraft:
    """This session's draft of an experiment."""
    found: ComposeDraft = st.session_state.setdefault("draft", ComposeDraft())
    return found


def reset_draft(source: tuple[str, str], config: dict[str, Any], name: str, repeats: int) -> ComposeDraft:
    """Begin a draft from `config`, with new widgets."""
    version = draft().version + 1
    st.session_state["draft"] = ComposeDraft(source, config, config, name, repeats, version)
    return draft()


def search_draft() -> SearchDraft:
    """This session's draft of a search."""
    found: SearchDraft = st.session_state.setdefault("search-draft", SearchDraft())
    return found


def reset_search_draft(source: tuple[str, str, str], body: dict[str, Any], name: str, step: int = 1) -> SearchDraft:
    """Begin a draft from `body`, with new widgets."""
    version = search_draft().version + 1
    st.session_state["search-draft"] = SearchDraft(source, body, copy.deepcopy(body), name, step, version)
    return search_draft()


def remember(key: str, value: object) -> None:
    """Keep `value` (an id, an open editor) until the session ends or it is taken."""
    st.session_state[f"kept.{key}"] = value


def recall(key: str, default: T) -> T:
    found: T = st.session_state.get(f"kept.{key}", default)
    return found


def take(key: str, default: T) -> T:
    """`recall`, and forget."""
    found: T = st.session_state.pop(f"kept.{key}", default)
    return found


def widget(key: str) -> Any:
    """The current value of the widget with this key, None before it was drawn."""
    return st.session_state.get(key)


def set_widget(key: str, value: object) -> None:
    """Set a widget's value; only before it is drawn in this run."""
    st.session_state[key] = value


def say(text: str, icon: str = ":material/check:") -> None:
    """A short word at the next drawing of a page, also after a change of page."""
    remember("toast", (text, icon))


def said() -> tuple[str, str] | None:
    """What `say` was given, once."""
    return take("toast", None)
