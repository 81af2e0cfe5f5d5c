"""Small widgets that several pages draw: each returns the person's input, and writes nothing."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import Any, Final, Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.shared import html
from scalebook.app.shared.words import ago
from scalebook.training.base import Problem, one_line
from scalebook.training.base.files import BrokenRecord
from scalebook.training.tracking import Direction, Goal, directions


def press_button(label: str, key: str, stamp: str = "", **looks: Any) -> bool:
    """Draw a button each of whose clicks is handled once; True while a click waits. After handling it the caller calls
    `state.clicks().mark_handled(key)`, before a rerun.

    `stamp` as in `state.Clicks`; `looks` are arguments of `st.button`.
    """
    clicks = state.clicks()
    st.button(label, key=key, on_click=clicks.note, args=(key, stamp), **looks)
    return clicks.waits(key, stamp)


def call_page(*names: str) -> None:
    """Set the title of the browser's tab, from the most specific name to the most general."""
    st.set_page_config(page_title=" · ".join((*names, "Scalebook")))


def page_title(text: str, about: str = "", within: str = "") -> None:
    """Draw a page's heading and a line on what it shows. `within`: title of its notebook, for the browser's tab."""
    call_page(*(part for part in (text, within) if part))
    st.title(text)
    if about:
        st.caption(about)


NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
MOST_DIGITS: Final = 300


def number_box(
    label: str,
    value: Any,
    key: str,
    *,
    whole: bool = False,
    hint: str | None = None,
    empty: str = "",
    hidden: bool = False,
    disabled: bool = False,
    in_address: bool = False,
) -> int | float | str | None:
    """Draw a box for a number; returns the number, None if the box is empty (`empty` is its placeholder), or the text
    if it is not a number.

    It is a text box: the browser's own number boxes read `1,5` as 15 and drop `abc`. Text is read exactly, or returned
    for a validation to refuse.
    """
    text = st.text_input(
        label,
        number_text(value),
        key=key,
        help=hint,
        placeholder=empty,
        disabled=disabled,
        label_visibility="collapsed" if hidden else "visible",
        bind="query-params" if in_address else None,
    )
    return read_number(text, whole=whole)


def read_number(text: str, *, whole: bool) -> int | float | str | None:
    """`text` as a number; None if it is blank, the text itself if it is not a finite number.

    With `whole`, `1e3` is 1000, and `1.5` is 1.5, which the field's validation refuses.
    """
    text = text.strip()
    if not text:
        return None
    if not NUMBER.fullmatch(text) or len(text) > MOST_DIGITS or not math.isfinite(float(text)):
        return text
    if whole and (exact := Decimal(text)) == exact.to_integral_value():
        return int(exact)
    return float(text)


def number_text(value: Any) -> str:
    """A number as a person would type it, which `read_number` reads back exactly; other values as text."""
    if not isinstance(value, float) or not math.isfinite(value):
        return "" if value is None else str(value)
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)


COPY = '<button type="button" class="sb-copy" title="Copy to clipboard" aria-label="Copy to clipboard"></button>'
YAML = re.compile(
    r"""(?P<comment>(?:^|(?<=\s))\#.*$)
    |(?P<key>(?:"[^"\n]*"|'[^'\n]*'|(?!-\s)[^\s\#"'{}\[\],:][^\#"'{}\[\],:\n]*(?::\S[^\#"'{}\[\],:\n]*)*)(?=:(?:\s|$)))
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*')
    |(?<![\w./:-])(?:(?P<number>[-+]?\.?\d[\d_.]*(?:[eE][-+]?\d+)?)|(?P<boolean>true|false|null))(?=[\s,\]}]|$)""",
    re.MULTILINE | re.VERBOSE,
)
"""Tokens of YAML to colour; good enough, although it also colours the text of block scalars."""


def code_block(
    text: str, language: Literal["text", "yaml"] = "text", *, height: int | None = None, wrap: bool = False
) -> None:
    """Draw text in a monospaced font with a copy button; YAML is coloured.

    Beyond `height` pixels it scrolls; `wrap` breaks long lines. Not `st.code`: its library has 1.5 MB, which blocks the
    browser for 0.5 s before it shows the rest of the page.
    """
    text = text.rstrip("\n")
    style = f' style="max-height:{height}px"' if height else ""
    content = yaml_html(text) if language == "yaml" else escape(text)
    body = f'<pre tabindex="0"{style}><code>{content}</code></pre>'
    html.draw(f'<div class="sb-code{" sb-wrapped" if wrap else ""}">{COPY}{body}</div>')


def yaml_html(text: str) -> str:
    """YAML as safe HTML, with its tokens marked."""
    parts, end = [], 0
    for match in YAML.finditer(text):
        parts.append(escape(text[end : match.start()], quote=False))
        parts.append(f'<span class="token {match.lastgroup}">{escape(match.group(), quote=False)}</span>')
        end = match.end()
    return "".join([*parts, escape(text[end:], quote=False)])


MOST_QUOTED = 120  # characters of a draft


def draft_line(left_at: float, what: str) -> None:
    """Draw the line about a draft, without buttons, on a page that has its own Start over."""
    st.caption(f":material/edit_note: **Draft** of {what}, last changed {ago(left_at)}, not saved to the notebook.")


def draft_label(left_at: float, what: str, key: str = "", text: str = "") -> Literal["continue", "discard"] | None:
    """Draw the line about a draft, with buttons; returns the clicked one. `left_at` in seconds since the epoch. `text`
    is quoted, and makes a Continue button: give it for a draft that the page does not show."""
    with st.container(border=bool(text), key=f"draft-label-{key}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            draft_line(left_at, what)
            goes_on = bool(text) and st.button("Continue", key=f"continue-draft-{key}")
            discarded = st.button("Discard", type="tertiary", key=f"discard-draft-{key}")
        if text:
            html.draw(f'<div class="sb-summary">{escape(one_line(text.strip(), MOST_QUOTED))}</div>')
    return "continue" if goes_on else "discard" if discarded else None


CellIntent = Literal["up", "down", "note above", "note below", "delete"]
CELL_PLACES: Final[Mapping[str, CellIntent]] = {
    "Move up": "up",
    "Move down": "down",
    "Add a note above": "note above",
    "Add a note below": "note below",
}
CELL_MENU: Final[Mapping[str, CellIntent]] = {**CELL_PLACES, "Delete": "delete"}


def cell_menu(name: str) -> CellIntent | None:
    """Draw the menu of the cell `name`; returns the picked entry."""
    picked = st.menu_button("More", list(CELL_MENU), key=f"more-{name}", type="tertiary", icon=":material/more_horiz:")
    return CELL_MENU[picked] if picked else None


BETTER_WORDS: Final[dict[Goal, str]] = {"min": "lower", "max": "higher"}


def turn_better(metric: str, direction: Direction, key: str, stamp: str = "", said: bool = False) -> Goal | None:
    """Draw a guessed direction of a metric with a button that turns it; returns the new goal on a click. Draws nothing
    if the direction is no guess.

    `said`: also draw a direction that a person has chosen, to turn it back. After a click the caller
    calls `mark_handled` for `key`.
    """
    if not (direction.guessed or (said and direction.source == "said")):
        return None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"direction-{key}"):
        st.caption(f"{metric}: {direction.words}", width="content")
        label = f"{BETTER_WORDS[direction.other].capitalize()} is better"
        under = f"{stamp} {direction.words}"  # turned back it is another click, not the same one again
        turned = press_button(label, key, under, type="tertiary", icon=":material/swap_vert:")
        return direction.other if turned else None


def choose_better(inferred: Direction, chosen: Goal | None, key: str) -> Direction:
    """Draw the choice of a direction in a form; returns `inferred`, or the chosen one. When `inferred` changes, by
    another choice in the form, the widget starts from it again."""
    before: Goal = chosen or ("min" if inferred.lower else "max")
    goal = st.segmented_control(
        "Better",
        directions.GOALS,
        default=before,
        required=True,
        key=f"{key}-{inferred.other}",
        format_func=BETTER_WORDS.__getitem__,
    )
    if chosen is None and inferred.source != "said" and (goal == "min") == inferred.lower:
        if inferred.guessed:
            st.caption("This is a guess, because neither the config nor the metric says which direction is better.")
        return inferred
    return Direction(goal == "min", "said")


def show_problems(problems: Sequence[Problem]) -> None:
    """Draw problems that no field of a form shows: errors in red, warnings in yellow."""
    for problem in problems:
        (st.error if problem.severity == "error" else st.warning)(str(problem))


def confirmed_anyway(words: str, key: str) -> bool:
    """Draw the warning `words` with a checkbox; returns whether the person may run it: no warning, or confirmed."""
    if not words:
        return True
    st.warning(words, icon=":material/groups:")
    return st.checkbox("Run anyway", key=key)


MOST_BROKEN = 5


def show_broken(errors: Sequence[BrokenRecord]) -> None:
    """Draw a warning that names the first few broken records; nothing without any."""
    if not errors:
        return
    lines = [str(error) for error in errors[:MOST_BROKEN]]
    more = [f"And {len(errors) - MOST_BROKEN} more: see `scalebook jobs list`."] if len(errors) > MOST_BROKEN else []
    st.warning("\n\n".join([*lines, *more]), icon=":material/broken_image:")
