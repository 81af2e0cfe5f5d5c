"""The head of one search: name, state, what is searched; its buttons; a form for a point by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import streamlit as st

from scalebook.app.search.components import search_cell
from scalebook.app.search.services.searches import SearchView
from scalebook.app.shared import html
from scalebook.app.shared.widgets import number_box, press_button
from scalebook.app.shared.words import ago
from scalebook.training.config.description import Field
from scalebook.training.config.fields import check_value, shown
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.errors import Problem

Intent = Literal["stop", "resume", "add trials", "add point"]
Given = int | dict[str, Any] | None
"""How many trials, or the point."""

KEYS: Final[dict[Intent, str]] = {
    "stop": "search-stop",
    "resume": "search-resume",
    "add trials": "add-trials",
    "add point": "add-point",
}
ENDED_EARLY: Final = ("interrupted", "stopped", "failed")
NUMBERS: Final = ("int", "uniform", "log_uniform")
"""Kinds of a dimension that are two ends and all between."""

MORE_TRIALS: Final = 20
trouble = search_cell.trouble


def title(search: SearchView) -> None:
    """Name and state."""
    html.draw(html.name(search.name, html.chip(search.colour, search.standing), page=True))


def line(search: SearchView, experiment: str) -> None:
    """What is searched, of which experiment, since when; in one line."""
    began = f"{experiment} · " if experiment else ""
    html.draw(search_cell.summary(search.body, f"{began}started {ago(search.request.created)}"))


def buttons(
    search: SearchView, mlflow_url: str | None, spec: SearchSpec | None, start: Mapping[str, Any], version: int
) -> tuple[Intent | None, Given]:
    """What can be done with it in its state. `spec` is None where it cannot be read, `start` a point to begin from.

    Another `version` makes the two forms anew, closed.
    """
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        intent: Intent | None = None
        given: Given = None
        now = f"{search.id}.{version}.{search.state}"
        if search.live and press_button(
            "Stop", KEYS["stop"], now, icon=":material/stop:", disabled=search.state == "stopping"
        ):
            intent = "stop"
        if search.state in ENDED_EARLY and press_button("Resume", KEYS["resume"], now, icon=":material/resume:"):
            intent = "resume"
        if spec is not None:
            with st.popover("Add trials", icon=":material/add:", key=f"trials-{version}"):
                more = number_box("More trials", MORE_TRIALS, f"more-trials-{version}", whole=True)
                wrong = check_value("trials", more, Field("trials", "int", required=True, minimum=1))
                if _given("Add", KEYS["add trials"], now, [wrong] if wrong else []) and isinstance(more, int):
                    intent, given = "add trials", more
            with st.popover("Add a point", icon=":material/add_location:", key=f"point-{version}"):
                point, refused = _point(spec, start, f"point-{version}")
                if _given("Try next", KEYS["add point"], now, refused):
                    intent, given = "add point", point
        if mlflow_url:
            st.link_button("Trials in MLflow", mlflow_url, icon=":material/open_in_new:")
    return intent, given


def _given(label: str, key: str, now: str, wrong: Sequence[Problem]) -> bool:
    """The button below a small form, off while anything in it is wrong, which is said."""
    for problem in wrong:
        st.error(str(problem))
    return press_button(label, key, now, type="primary", disabled=bool(wrong)) and not wrong


def _point(spec: SearchSpec, start: Mapping[str, Any], key: str) -> tuple[dict[str, Any], list[Problem]]:
    """A value for each dimension, and those beyond its limits; begins near the best point so far."""
    point = {
        dimension.name: _value(dimension, start.get(dimension.name), f"{key}-{dimension.name}")
        for dimension in spec.space
    }
    wrong = [dimension for dimension in spec.space if not dimension.contains(point[dimension.name])]
    return point, [
        Problem(dimension.name, f"is {shown(point[dimension.name])}", f"Allowed: {dimension.words()}.")
        for dimension in wrong
    ]


def _value(dimension: Dimension, start: Any, key: str) -> Any:
    hint = f"Allowed: {dimension.words()}."
    if dimension.kind not in NUMBERS:
        values = dimension.grid()
        index = values.index(start) if start in values else 0
        return st.selectbox(dimension.name, values, index, format_func=dimension.label, key=key, help=hint)
    if dimension.kind == "int":
        return number_box(dimension.name, int(dimension.low if start is None else start), key, whole=True, hint=hint)
    middle = (
        (dimension.low * dimension.high) ** 0.5
        if dimension.kind == "log_uniform"
        else (dimension.low + dimension.high) / 2
    )
    value = float(f"{middle if start is None else start:.3g}")
    value = min(max(value, float(dimension.low)), float(dimension.high))
    return number_box(dimension.name, value, key, hint=hint)
