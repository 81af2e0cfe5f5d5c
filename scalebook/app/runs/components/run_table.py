"""Runs in rows: what they are, how they stand, what came out. A tick selects, a click on a name opens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared.components import style
from scalebook.app.shared.services.words import ago
from scalebook.training.tracking import names

COLOURS = {  # of a state's chip, on the light and on the dark ground
    "waiting": ("#f3e3b8", "#5a4716"),
    "running": ("#bfe3e5", "#155258"),
    "stopping": ("#bfe3e5", "#155258"),
    "finished": ("#cbe7d5", "#1f5135"),
    "failed": ("#f6cfc9", "#6d2b24"),
    "stopped": ("#dfe2e0", "#3d4644"),
}


OPTIONAL = ("remark", "staleness")  # columns that are left out where no row has anything in them


@dataclass(frozen=True)
class RunSelection:
    """`ticked` run ids in the table's order; `opened` the run whose name was clicked."""

    ticked: list[str] = field(default_factory=list)
    opened: str | None = None


def draw(views: Sequence[RunView], key: str) -> RunSelection:
    """The table; its key must change with the set of rows, because a selection is kept by position."""
    table = pd.DataFrame([_row(view) for view in views])
    event: Any = st.dataframe(
        table,
        key=key,
        hide_index=True,
        height="content",
        placeholder="–",
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        column_config=_columns(),
        column_order=[
            str(name) for name in table if name not in OPTIONAL or any(_told(value) for value in table[name])
        ],
        alt="runs, newest first",
    )
    ticked = [views[i].id for i in event.selection.rows if i < len(views)]
    cells = event.selection.cells
    opened = views[cells[0][0]].id if cells and cells[0][0] < len(views) else None
    return RunSelection(ticked, opened)


def _told(value: Any) -> bool:
    """Whether a cell says anything; pandas makes NaN of None among numbers."""
    return bool(pd.notna(value)) and value != ""


def _row(view: RunView) -> dict[str, Any]:
    metrics = view.metrics
    metric = names.main_metric(metrics)
    return {
        "name": view.title,
        "state": [view.state],
        "strategy": view.strategy,
        "metric": (metric or "").removeprefix("val/"),
        "best": metrics.get(names.best(metric)) if metric else None,
        "final": metrics.get(names.final(metric), metrics.get(metric)) if metric else None,
        "staleness": metrics.get(names.STALENESS_MEAN),
        "rate": metrics.get(names.UPDATES_PER_SECOND),
        "seconds": view.seconds,
        "when": ago(view.began) if view.began else "",
        "remark": view.reason or (f"{view.failure}: {view.cause}" if view.state == "failed" else ""),
    }


def _columns() -> dict[str, Any]:
    column = st.column_config
    words, colours = list(COLOURS), [pair[style.dark()] for pair in COLOURS.values()]
    return {
        "name": column.TextColumn("Run", width="medium", help="Click to open."),
        "state": column.MultiselectColumn("State", options=words, color=colours, width="small"),
        "strategy": column.TextColumn("Strategy", width=190),
        "metric": column.TextColumn("Metric", width=105),
        "best": column.NumberColumn("Best", format="%.4f", width="small"),
        "final": column.NumberColumn(
            "Last", format="%.4f", width="small", help="The final value, or the latest of a run that goes on."
        ),
        "staleness": column.NumberColumn("Staleness", format="%.2f", width="small", help="Mean, in updates."),
        "rate": column.NumberColumn("Updates/s", format="%.0f", width="small"),
        "seconds": column.NumberColumn("Seconds", format="%.1f", width="small", help="Wall time since the start."),
        "when": column.TextColumn("Started", width="small"),
        "remark": column.TextColumn("Why", width="large", help="Why it waits, or why it failed."),
    }
