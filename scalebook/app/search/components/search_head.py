"""The head of one search: name, state, what is searched; its buttons; a form for a point by hand."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final, Literal

import streamlit as st

from scalebook.app.search.components import search_cell
from scalebook.app.search.services.searches import SearchView
from scalebook.app.shared.components import html
from scalebook.app.shared.services import form
from scalebook.app.shared.services.words import ago
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.types import SearchSpec

Intent = Literal["stop", "resume", "add trials", "add point"]
Given = int | dict[str, Any] | None
"""How many trials, or the point."""

MORE_TRIALS: Final = 20
trouble = search_cell.trouble


def title(found: SearchView) -> None:
    """Name and state."""
    html.draw(f'<span class="sb-name" style="font-size:1.45rem">{escape(found.name)}</span> {html.chip(found.state)}')


def line(found: SearchView, experiment: str) -> None:
    """What is searched, of which experiment, since when; in one line."""
    began = f"{experiment} · " if experiment else ""
    html.draw(search_cell.summary(found.body, f"{began}started {ago(found.request.created)}"))


def buttons(
    found: SearchView, mlflow_url: str | None, spec: SearchSpec | None, start: Mapping[str, Any], version: int
) -> tuple[Intent | None, Given]:
    """What can be done with it in its state. `spec` is None where it cannot be read, `start` a point to begin from.

    Another `version` makes the two forms anew, closed.
    """
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        intent: Intent | None = None
        given: Given = None
        if found.live and st.button("Stop", icon=":material/stop:", disabled=found.state == "stopping"):
            intent = "stop"
        if found.state in ("interrupted", "stopped", "failed") and st.button("Resume", icon=":material/resume:"):
            intent = "resume"
        if spec is not None:
            with st.popover("Add trials", icon=":material/add:", key=f"trials-{version}"):
                more = st.number_input("How many more", 1, value=MORE_TRIALS, step=5, key=f"more-trials-{version}")
                if st.button("Add them", type="primary", key="add-trials"):
                    intent, given = "add trials", int(more)
            with st.popover("Add a point", icon=":material/add_location:", key=f"point-{version}"):
                point = _point(spec, start, f"point-{version}")
                if st.button("Try it next", type="primary", key="add-point"):
                    intent, given = "add point", point
        if mlflow_url:
            st.link_button("Open in MLflow", mlflow_url, icon=":material/open_in_new:")
    return intent, given


def _point(spec: SearchSpec, start: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A value for each dimension, within its limits; begins near the best point so far."""
    return {one.name: _value(one, start.get(one.name), f"{key}-{one.name}") for one in spec.space}


def _value(one: Dimension, start: Any, key: str) -> Any:
    hint = f"Of {one.words()}."
    if one.kind in ("grid", "values", "powers_of_two"):
        values = one.grid()
        index = values.index(start) if start in values else 0
        return st.selectbox(one.name, values, index, format_func=one.label, key=key, help=hint)
    if one.kind == "int":
        low, high = int(one.low), int(one.high)
        return st.number_input(
            one.name, low, high, int(start) if start is not None else low, one.step, key=key, help=hint
        )
    middle = (one.low * one.high) ** 0.5 if one.kind == "log_uniform" else (one.low + one.high) / 2
    value = float(f"{middle if start is None else start:.3g}")
    return st.number_input(
        one.name,
        float(one.low),
        float(one.high),
        min(max(value, float(one.low)), float(one.high)),
        step=form.step_of(value),
        format="%.6g",
        key=key,
        help=hint,
    )
