"""A search in the notebook: its line, how far it is, the best so far, its buttons."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal

import streamlit as st

from scalebook.app.search.services.searches import Best, SearchView, budget_words, scaling_words, space_words
from scalebook.app.shared import html
from scalebook.app.shared.widgets import CellIntent, cell_menu, press_button, show_problems
from scalebook.app.shared.words import plural, sentence
from scalebook.training.durations import duration
from scalebook.training.errors import Problem

Intent = Literal["run", "stop", "resume", "open", "edit"] | CellIntent


def draw(
    name: str,
    body: Mapping[str, Any],
    search: SearchView | None,
    stale: str,
    best: Best | None,
    problems: Sequence[Problem],
    page: str,
) -> Intent | None:
    """The card; returns what was asked for. `search` is its newest search, None before the first; `stale`
    says what has changed since, "" where nothing has.

    `page` tells this state of the notebook from others.
    """
    intent = _head(name, search, stale, any(one.severity == "error" for one in problems), page)
    html.draw(summary(body, f"of {body['experiment']}" if body.get("experiment") else ""))
    show_problems(problems)
    if search is not None:
        if search.live:
            progress(search)
        trouble(search)
        if best is not None:
            html.draw(best_line(search, best))
    return intent


def _head(name: str, search: SearchView | None, stale: str, blocked: bool, page: str) -> Intent | None:
    chips = html.chip(search.colour, search.standing) if search else html.chip("new", "not run yet")
    if stale:
        chips += " " + html.chip("stale", f"stale: {stale}")
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        html.draw(html.name(name, chips))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        intent = _main_button(name, search, stale, blocked, f"{page} {search.id} {search.state}" if search else page)
        if search and press_button("Open", f"open-{name}", icon=":material/open_in_full:"):
            intent = "open"
        if press_button("Edit", f"edit-{name}", type="tertiary"):
            intent = "edit"
        return cell_menu(name) or intent


def _main_button(name: str, search: SearchView | None, stale: str, blocked: bool, now: str) -> Intent | None:
    """Stop while it lives, Resume where it can go on, else Run."""
    if search is not None and search.live:
        stopping = search.state == "stopping"
        return "stop" if press_button("Stop", f"stop-{name}", now, icon=":material/stop:", disabled=stopping) else None
    if search is not None and search.state in ("interrupted", "stopped", "failed") and not stale:
        return "resume" if press_button("Resume", f"resume-{name}", now, icon=":material/resume:") else None
    done = search is not None and search.complete and not stale
    pressed = press_button(
        "Run",
        f"run-{name}",
        now,
        icon=":material/play_arrow:",
        disabled=blocked or done,
        help="All trials are done. Open the search to add more, or edit it." if done else None,
    )
    return "run" if pressed else None


def summary(body: Mapping[str, Any], what: str) -> str:
    """What is varied over what, `what` of, what a batch size means, the budget: one line."""
    parts = [what, scaling_words(body), *budget_words(body)]
    shown = [f"<b>{escape(space_words(body))}</b>", *(escape(part) for part in parts if part)]
    return f'<div class="sb-summary">{" · ".join(shown)}</div>'


def progress(search: SearchView) -> None:
    """The bar of a search that has not ended: `12 of 30 trials · 2 running · about 40 s left`."""
    st.progress(search.fraction, text=standing(search))


def standing(search: SearchView) -> str:
    if search.state == "waiting":
        return "waits for the supervisor to start it"
    if search.state == "stopping":
        return "stopping: running trials end now, and run again on Resume"
    if search.progress is None:
        return "starting"
    state = search.progress
    parts = [f"{state.done:,} of {search.trials:,} trials"]
    if state.running:
        parts.append(f"{state.running} running")
    if state.left_s is not None:
        parts.append(f"about {duration(state.left_s)} left")
    if state.note:
        parts.append(state.note)
    return " · ".join(parts)


def trouble(search: SearchView) -> None:
    """Why it does not go on."""
    if search.state == "interrupted":
        st.warning(search.trouble, icon=":material/link_off:")
    elif search.state == "failed":
        st.error(f"**The search failed.** {sentence(search.trouble)}", icon=":material/error:")
    elif search.state == "finished" and search.result is not None and search.result.failed:
        st.warning(sentence(search.result.cause), icon=":material/warning:")
    elif search.state == "stopped":
        st.info(f"{sentence(search.trouble or 'This search was stopped')} Resume continues where it stopped.")


def best_line(search: SearchView, best: Best) -> str:
    """`best val/loss 0.1293 at batch 128, rate 0.08, after 60 of 60 trials`"""
    after = f"after {search.done:,} of {plural(search.trials, 'trial')}"
    value = html.marked(best.value) if best.is_own else escape(best.value)
    return (
        f'<div class="sb-best"><span>best {escape(search.objective)}</span><b>{value}</b>'
        f"<span>at</span><b>{escape(best.point)}</b><span>{escape(after)}</span></div>"
    )
