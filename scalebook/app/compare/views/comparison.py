"""A comparison cell of a notebook: chart and table, live while any of its runs is."""

from html import escape

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare.components import comparison
from scalebook.app.compare.services import plans
from scalebook.app.compare.views import editing
from scalebook.app.navigation import COMPARE
from scalebook.app.shared import dialogs, html, links, notes
from scalebook.app.shared.dialogs import write
from scalebook.app.shared.widgets import cell_menu, number_text, press_button, turn_better
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ComparisonCell
from scalebook.training.notebook.comparison import Comparison, compare
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunReader

EVERY_S = 2.0
LIVE = ("running", "waiting")


def show(stored: Stored, index: int, cell: ComparisonCell, reader: RunReader) -> None:
    """The card; drawn every other second while a run that belongs to it waits or runs.

    `reader` is for this drawing of the page alone.
    """
    compared = _compare(stored, cell, reader)
    live = any(row.outcome in LIVE for row in compared.rows)
    with st.container(border=True, key=f"cell-comparison-{cell.name}"):
        _head(stored, index, cell, compared)
        st.fragment(_body, run_every=EVERY_S if live else None)(stored, cell, None if live else compared)


def _compare(stored: Stored, cell: ComparisonCell, reader: RunReader | None = None) -> Comparison:
    return compare(reader or resources.reader(), stored.path.name, stored.notebook, cell, resources.description())


def _head(stored: Stored, index: int, cell: ComparisonCell, compared: Comparison) -> None:
    runs = [run for row in compared.rows for run in row.run_ids]
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        html.draw(html.name(cell.name, f'<span class="sb-dim">{escape(compared.metric)}</span>'))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"):
        if runs:
            st.page_link(COMPARE.script, label="Run by run", query_params=_run_by_run(cell, compared.metric, runs))
        address = resources.mlflow_address()
        if address and runs:
            experiments = [resources.reader().run(run).experiment_id for run in runs]
            st.link_button(
                "Open in MLflow", links.compare(address, runs, experiments), type="tertiary", key=f"mlflow-{cell.name}"
            )
        if press_button("Edit", f"edit-{cell.name}", type="tertiary"):
            state.clicks().settle(f"edit-{cell.name}", done=False)
            editing.ask([plans.of_cell(stored, cell, resources.description(), editing.recorded(stored))])
        intent = cell_menu(cell.name)
    if intent == "delete":
        dialogs.confirm_delete(stored, index, "comparison", cell.name, "Its runs stay.")
    if intent is not None:
        notes.place(intent, stored, index)
        st.rerun()


def _run_by_run(cell: ComparisonCell, metric: str, runs: list[str]) -> dict[str, str]:
    """The page of the single runs, by the same metric and target, on the same axes."""
    asked = {"runs": ",".join(runs), "metric": metric}
    if cell.x:
        asked["x"] = cell.x[0]
    if cell.target is not None:
        asked["target"] = number_text(cell.target)
    if cell.scale == "log":
        asked["log"] = "true"
    return asked


def _body(stored: Stored, cell: ComparisonCell, compared: Comparison | None) -> None:
    compared = compared or _compare(stored, cell)
    axis = compared.axes[0]
    if len(compared.axes) > 1:
        axis = st.segmented_control(
            "X axis", compared.axes, default=axis, required=True, key=f"x-{cell.name}", label_visibility="collapsed"
        )
    comparison.curves(compared, axis, log_y=cell.scale == "log", key=f"comparison-{cell.name}", height=340)
    comparison.table(compared)
    key = f"better-{cell.name}"
    if goal := turn_better(compared.metric, compared.direction, key, stored.stamp):
        done = write(stored, lambda notebook: edit.say_better(notebook, cell, compared.metric, goal))
        state.clicks().settle(key, done=done is not None)
        st.rerun()
    comparison.why(compared)
    if compared.differences:
        with st.expander("Config differences"):
            comparison.differences(compared.differences, [row.experiment for row in compared.rows])
