"""The form of a comparison: which experiments, by which metric, against what."""

from dataclasses import replace
from typing import Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.compare.services.plans import ComparisonPlan
from scalebook.app.shared.widgets import choose_better, number_box, press_button
from scalebook.training.errors import Problem
from scalebook.training.notebook.cells import ComparisonCell
from scalebook.training.notebook.rows import AXES
from scalebook.training.tracking.directions import Goal

SAVE = "comparison-save"
NOT_A_NUMBER = Problem("Target", "is not a number", "Write one, such as 0.95, or leave it empty.")


def draw(plan: ComparisonPlan) -> tuple[ComparisonCell, list[Problem]]:
    """What the form says now, and what is wrong with it."""
    cell, key = plan.cell, f"comparison-form-{plan.stored.path.name}-{plan.left_at or 0:.0f}"
    there = {cell.name for cell in plan.stored.notebook.experiments()}
    name = st.text_input("Name", cell.name, key=f"{key}-name")
    runs = st.multiselect(
        "Experiments", plan.offered, cell.runs, key=f"{key}-runs", placeholder="Choose experiments",
        format_func=lambda name: name if name in there else f"{name} (not in this notebook)",
        help="Each is a line in the chart and a row in the table, from its newest runs.",
    )  # fmt: skip
    left, right = st.columns(2)
    with left:
        options = [*dict.fromkeys([*plan.metrics, *([cell.metric] if cell.metric else [])])]
        metric = st.selectbox("Metric", options, options.index(cell.metric) if cell.metric else None,
                              key=f"{key}-metric", placeholder="The main metric of its runs",
                              accept_new_options=True, help="Or type another name.")  # fmt: skip
        metric = (metric or "").strip()
        said = cell.goal if metric == cell.metric else None
        told = choose_better(plan.better(runs, metric), said, f"{key}-better-{metric}") if metric else None
        hint = "Adds the updates, samples and seconds it took to reach it."
        target = number_box("Target", cell.target, f"{key}-target", empty="none", hint=hint)
    with right:
        axes = st.multiselect("X axis", AXES, cell.x, key=f"{key}-x", placeholder="Choose an axis",
                              help="With several, the cell has a switch that starts at the first.")  # fmt: skip
        log = st.toggle("Log scale", cell.scale == "log", key=f"{key}-log", help="Logarithmic metric axis.")
    wrong = [NOT_A_NUMBER] if isinstance(target, str) else []
    reach = None if target is None or isinstance(target, str) else float(target)
    goal: Goal | None = None if told is None or told.source != "said" else "min" if told.lower else "max"
    now = replace(cell, name=name.strip(), runs=runs, metric=metric, goal=goal, x=axes, target=reach,
                  scale="log" if log else "linear")  # fmt: skip
    return now, [*plan.problems(now), *wrong]


def buttons(wrong: list[Problem], shown: str) -> Literal["save", "cancel"] | None:
    """Save is off while anything is wrong, which is said. `shown` as in `state.Clicks`."""
    for problem in wrong:
        st.caption(f":red[{problem}]")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="comparison-cancel"):
            return "cancel"
        if press_button("Save", SAVE, shown, type="primary", disabled=bool(wrong)):
            if not wrong:
                return "save"
            state.clicks().settle(SAVE, done=False)  # clicked before the page had heard of what is wrong
    return None
