"""All trials in rows. A picked row offers its configuration and its run."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from scalebook.app.search.services import search_view
from scalebook.app.search.services.search_view import TrialRow
from scalebook.app.shared import style
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking.own_metrics import SIGN, WORDS

READING = "Click a column's head to sort; tick a trial to select it."
HEIGHT = 470
CHIPS = {  # of a state, on the light and on the dark ground: those of the table of runs, and three of the search's own
    "finished": ("#cbe7d5", "#1f5135"),
    "pruned": ("#ddd3f0", "#463474"),
    "infeasible": ("#f6dcbc", "#6b3f10"),
    "failed": ("#f6cfc9", "#6d2b24"),
    "running": ("#bfe3e5", "#155258"),
    "waiting": ("#f3e3b8", "#5a4716"),
}
APPLIED = "rate applied"
ORDERS = ("by number", "best first")


def draw(
    records: Sequence[TrialRecord],
    rows: Sequence[TrialRow],
    spec: SearchSpec,
    order: str,
    key: str,
    factors: Mapping[int, float],
) -> TrialRecord | None:
    """The table, and the trial whose row is ticked. `factors`: what a trial's learning rate was multiplied with."""
    if order == ORDERS[1]:
        lower = spec.objectives[0].lower
        rows = sorted(
            rows, key=lambda row: (row.values[0] is None, (row.values[0] or 0.0) * (1 if lower else -1), row.number)
        )
        key += "-" + hashlib.sha256(str([row.number for row in rows]).encode()).hexdigest()[:8]
    event: Any = st.dataframe(
        pd.DataFrame([_cells(row, spec, factors) for row in rows]),
        key=key,
        hide_index=True,
        height=HEIGHT,
        placeholder="–",
        on_select="rerun",
        selection_mode="single-row",
        column_config=_columns(spec),
        column_order=[
            name
            for name in _columns(spec)
            if name not in ("why", "own") or any((row.why if name == "why" else row.own) for row in rows)
        ],
        alt="all trials",
    )
    ticked = [rows[i].number for i in event.selection.rows if i < len(rows)]
    return next((record for record in records if record.number in ticked), None)


def _cells(row: TrialRow, spec: SearchSpec, factors: Mapping[int, float]) -> dict[str, Any]:
    point = {
        f"point.{dimension.name}": _sortable(row.raw.get(dimension.name), row.point[dimension.name])
        for dimension in spec.space
    }
    values = {f"value.{i}": value for i, value in enumerate(row.values)}
    asked, factor = row.raw.get("learning_rate"), factors.get(row.number)
    if search_view.per_batch(spec) is not None:
        point[APPLIED] = asked * factor if isinstance(asked, int | float) and factor is not None else None
    return {
        "number": row.number, "state": [row.state], **point, **values, "spread": row.spread, "seconds": row.seconds,
        "why": row.why, "own": row.own,
    }  # fmt: skip


def _sortable(raw: Any, label: str) -> Any:
    """A number stays one, so that its column is sorted by size."""
    return raw if isinstance(raw, int | float) and not isinstance(raw, bool) else label


def _columns(spec: SearchSpec) -> dict[str, Any]:
    column = st.column_config
    colours = [pair[style.dark()] for pair in CHIPS.values()]
    columns: dict[str, Any] = {
        "number": column.NumberColumn("Trial", width=64),
        "state": column.MultiselectColumn("State", options=list(CHIPS), color=colours, width=96),
    }
    per = search_view.per_batch(spec)
    for dimension in spec.space:
        if dimension.name == "learning_rate" and per is not None:
            columns[APPLIED] = column.NumberColumn(
                "learning rate", format="%.4g", width=108, help="As applied at this batch size."
            )
            columns[f"point.{dimension.name}"] = column.NumberColumn(
                spec.called(dimension.name), format="%.4g", width=220
            )
            continue
        name = dimension.name.rsplit(".", 1)[-1].replace("_", " ")
        if dimension.ordered:
            whole = dimension.kind in ("int", "powers_of_two")
            columns[f"point.{dimension.name}"] = column.NumberColumn(name, format="%d" if whole else "%.4g", width=108)
        else:
            numbers = all(isinstance(each, int | float) for each in dimension.choices)
            columns[f"point.{dimension.name}"] = (column.NumberColumn if numbers else column.TextColumn)(
                name, width=108
            )
    for i, objective in enumerate(spec.objectives):
        columns[f"value.{i}"] = column.NumberColumn(objective.name, format="%.5g", width=108)
    columns["own"] = column.TextColumn(f"{SIGN} Per worker", width="small", help=WORDS)
    if spec.seeds > 1:
        columns["spread"] = column.NumberColumn(
            "±", format="%.2g", width=70, help="Half of the 95 % interval over seeds."
        )
    columns["seconds"] = column.NumberColumn(
        search_view.amount(spec, "seconds").capitalize(),
        format="%.1f",
        width=80,
        help="Training time, mean of its seeds.",
    )
    columns["why"] = column.TextColumn("Why", width=380, help="Why it was pruned, could not run or failed.")
    return columns
