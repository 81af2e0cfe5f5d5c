"""Runs in rows: what they are, how they stand, what came out. A tick selects, a name is a link."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs.services import run_query
from scalebook.app.runs.services.run_query import FACETS, RunGroup
from scalebook.app.runs.services.runs import RunView
from scalebook.app.shared.components import style
from scalebook.app.shared.services.words import ago
from scalebook.training.notebook.labels import labels
from scalebook.training.tracking import names
from scalebook.training.tracking.own_metrics import SIGN, WORDS, is_own

COLOURS = {  # of a state's chip, on the light and on the dark ground
    "waiting": ("#f3e3b8", "#5a4716"),
    "running": ("#bfe3e5", "#155258"),
    "stopping": ("#bfe3e5", "#155258"),
    "finished": ("#cbe7d5", "#1f5135"),
    "failed": ("#f6cfc9", "#6d2b24"),
    "pruned": ("#ddd3f0", "#463474"),
    "stopped": ("#dfe2e0", "#3d4644"),
}


OPTIONAL = ("own", "remark", "staleness", "tags", "note")  # columns that are left out where no row has anything in them
DIFFERING = ("notebook", "model", "metric", "batch", "lr")  # and those that are left out where all rows say the same
CALLED = "called"  # of a run's address: what its link shows; see links.js


def draw(views: Sequence[RunView], key: str, columns: Sequence[str] = ()) -> list[str]:
    """The table; the ids of the ticked runs, in its order. Its key must change with the set of rows, because a
    selection is kept by position.

    `columns` are metrics that have a column of their own.
    """
    called = _called(views)
    rows = [_row(view, RUNS.url(**{CALLED: called[view.id], "run": view.id}), columns) for view in views]
    table = pd.DataFrame(rows)
    event: Any = st.dataframe(
        table,
        key=key,
        hide_index=True,
        height="content",
        placeholder="–",
        on_select="rerun",
        selection_mode="multi-row",
        column_config=_columns(_one(table, "metric")) | _metric_columns(columns),
        column_order=_shown(table),
        alt="runs",  # the style sheet knows it: the table's own download would write addresses, ours is `as_csv`
    )
    return [views[i].id for i in event.selection.rows if i < len(views)]


def as_csv(views: Sequence[RunView], columns: Sequence[str] = ()) -> str:
    """The same table as a file, with names in place of links, and the id of each run."""
    called = _called(views)
    table = pd.DataFrame([_row(view, called[view.id], columns) for view in views])
    shown = table[_shown(table)]
    shown = shown.map(lambda value: ", ".join(value) if isinstance(value, list) else value)
    titles = {name: one["label"] for name, one in (_columns("") | _metric_columns(columns)).items()}
    return str(shown.rename(columns=titles).assign(id=[view.id for view in views]).to_csv(index=False))


def _called(views: Sequence[RunView]) -> Mapping[str, str]:
    """What runs are called where they stand together, by id."""
    titles = {view.id: view.title for view in views}
    return labels([view.record for view in views], lambda record: titles[record.id])


def _shown(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table if _worth(str(name), list(table[name]))]


def _one(table: pd.DataFrame, name: str) -> str:
    """What all rows say in this column; "" where they differ."""
    said = {str(value) for value in table[name] if value}
    return said.pop() if len(said) == 1 else ""


def draw_groups(groups: Sequence[RunGroup], facet: str, columns: Sequence[str], key: str) -> RunGroup | None:
    """A row for each group; returns the one whose name was clicked."""
    column = st.column_config
    rows = [
        {"value": group.value or "none", "runs": group.runs, "states": group.states, "best": group.best,
         "mean": group.mean, **{_metric(name): value for name, value in group.columns.items()}}
        for group in groups
    ]  # fmt: skip
    event: Any = st.dataframe(
        pd.DataFrame(rows), key=key, hide_index=True, height="content", placeholder="–", on_select="rerun",
        selection_mode="single-cell", alt=f"runs by {facet}",
        column_config={
            "value": column.TextColumn(facet.capitalize(), width="medium", help="Click to see its runs."),
            "runs": column.NumberColumn("Runs", width="small"),
            "states": column.TextColumn("States", width="medium"),
            "best": column.NumberColumn("Best", format="%.4f", help="Best of all its runs."),
            "mean": column.NumberColumn("Mean of best", format="%.4f", help="Mean of each run's best."),
        } | _metric_columns(columns, "Mean of the last value of each run."),
    )  # fmt: skip
    cells = event.selection.cells
    return groups[cells[0][0]] if cells and cells[0][0] < len(groups) else None


def _metric(name: str) -> str:
    """The key of a metric's column; no column of ours begins so."""
    return f"metric {name}"


def _metric_columns(columns: Sequence[str], words: str = "Last value.") -> dict[str, Any]:
    return {_metric(name): st.column_config.NumberColumn(name, format="%.5g", help=words) for name in columns}


def _worth(name: str, values: Sequence[Any]) -> bool:
    """Whether a column is shown."""
    if name in DIFFERING:  # a run that has logged nothing yet says no metric
        return len(set(values) - ({""} if name == "metric" else set())) > 1
    return name not in OPTIONAL or any(_told(value) for value in values)


def _told(value: Any) -> bool:
    """Whether a cell says anything; pandas makes NaN of None among numbers."""
    return bool(value) if isinstance(value, list) else bool(pd.notna(value)) and value != ""


def _row(view: RunView, name: str, columns: Sequence[str]) -> dict[str, Any]:
    metrics = view.metrics
    metric = names.main_metric(metrics)
    return {
        "name": name,
        "state": [view.state],
        "notebook": FACETS["notebook"](view.record),
        "model": FACETS["model"](view.record),
        "strategy": view.strategy,
        "batch": FACETS["batch"](view.record),
        "lr": FACETS["rate"](view.record),
        "metric": (metric or "").removeprefix("val/"),
        "best": metrics.get(names.best(metric)) if metric else None,
        "final": metrics.get(names.final(metric), metrics.get(metric)) if metric else None,
        "own": ", ".join(name for name in dict.fromkeys([metric or "", *columns]) if is_own(view.record.tags, name)),
        **{_metric(name): metrics.get(name) for name in columns},
        "staleness": metrics.get(names.STALENESS_MEAN),
        "rate": metrics.get(names.UPDATES_PER_SECOND),
        "seconds": view.seconds,
        "when": ago(view.began) if view.began else None,
        "tags": run_query.tags(view.record),
        "note": run_query.note(view.record),
        "remark": view.reason
        or (f"{view.failure}: {view.cause}" if view.state == "failed" else run_query.purpose(view.record))
        or view.pruned,
    }


def _columns(metric: str) -> dict[str, Any]:
    """`metric`: of all rows, "" where they differ."""
    column = st.column_config
    of = f" {metric}" if metric else ""
    words, colours = list(COLOURS), [pair[style.dark()] for pair in COLOURS.values()]
    return {
        "name": column.LinkColumn("Run", width="medium", display_text=rf"[?&]{CALLED}=([^&]*)", alignment="left"),
        "state": column.MultiselectColumn("State", options=words, color=colours, width="small"),
        "notebook": column.TextColumn("Notebook", width="small"),
        "model": column.TextColumn("Model", width=120),
        "strategy": column.TextColumn("Strategy", width=230),
        "batch": column.TextColumn("Batch per worker", width="small", help="Samples per gradient.", alignment="right"),
        "lr": column.TextColumn("Learning rate", width="small", help="As applied.", alignment="right"),
        "metric": column.TextColumn("Metric", width=105),
        "best": column.NumberColumn(f"Best{of}", format="%.4f", width=120 if metric else "small"),
        "final": column.NumberColumn(
            "Last", format="%.4f", width="small", help="Final value; of an active run, the latest."
        ),
        "own": column.TextColumn(f"{SIGN} Worker 0 only", width="small", help=WORDS),
        "staleness": column.NumberColumn("Staleness", format="%.2f", width="small", help="Mean, in updates."),
        "rate": column.NumberColumn(
            "Updates/s", format="%.0f", width="small", help="With virtual workers: per virtual second."
        ),
        "seconds": column.NumberColumn("Seconds", format="%.1f", width="small", help="Wall time since the start."),
        "when": column.TextColumn("Started", width="small"),
        "tags": column.ListColumn("Tags", width="small"),
        "note": column.TextColumn("Note", width="medium"),
        "remark": column.TextColumn("Why", width="large", help="Why it waits, failed or was pruned; what it was for."),
    }
