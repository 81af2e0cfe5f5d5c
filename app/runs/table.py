"""The table of runs: their settings, states and results. A tick selects a run, its name is a link."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pandas as pd
import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs import run_query
from scalebook.app.runs.data import RunView
from scalebook.app.runs.run_query import FACETS, RunGroup
from scalebook.app.shared import style
from scalebook.app.shared.words import ago, figure
from scalebook.training.notebook import labels
from scalebook.training.tracking import names, own_metrics

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
EXACT = ".12g"  # of a parameter's number: what somebody wrote is not rounded
CALLED = "called"  # of a run's address: what its link shows; see links.js


def run_table(views: Sequence[RunView], key: str, columns: Sequence[str] = ()) -> list[str]:
    """Draw the table; returns the ids of the ticked runs, in its order. `key` must change with the set of rows, because
    Streamlit stores the selection by position.

    `columns`: metrics and parameters (`params.lr`) that get a column each.
    """
    called = {id_: cut_in_the_middle(name) for id_, name in _called(views).items()}
    table, config = _table(
        views, {id_: RUNS.url(**{CALLED: name, "run": id_}) for id_, name in called.items()}, columns
    )
    event: Any = st.dataframe(
        table,
        key=key,
        hide_index=True,
        height="content",
        placeholder="–",
        on_select="rerun",
        selection_mode="multi-row",
        column_config=config,
        column_order=_shown(table),
        alt="runs",  # the style sheet knows it: the table's own download would write addresses, ours is `as_csv`
    )
    return [views[i].id for i in event.selection.rows if i < len(views)]


def as_csv(views: Sequence[RunView], columns: Sequence[str] = ()) -> str:
    """The table as CSV, with names instead of links, and the id of each run."""
    table, config = _table(views, _called(views), columns)
    frame = table[_shown(table)]
    frame = frame.map(lambda value: ", ".join(value) if isinstance(value, list) else value)
    titles = {name: column["label"] for name, column in config.items()}
    return str(frame.rename(columns=titles).assign(id=[view.id for view in views]).to_csv(index=False))


def _called(views: Sequence[RunView]) -> Mapping[str, str]:
    """The names of runs that are listed together, by id."""
    titles = {view.id: view.title for view in views}
    return labels([view.record for view in views], lambda record: titles[record.id])


MOST_NAME: Final = 27
"""Characters of a run's name that its column has room for."""
BEGIN: Final = 7


def cut_in_the_middle(name: str) -> str:
    """A name that is too long for its column, without its middle: names of one notebook often differ at their ends."""
    return name if len(name) <= MOST_NAME else f"{name[:BEGIN]}…{name[BEGIN + 1 - MOST_NAME :]}"


def _shown(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table if _worth(str(name), list(table[name]))]


def _one(values: Sequence[Any]) -> str:
    """The value that all have; "" if they differ."""
    distinct = {str(value) for value in values if value}
    return distinct.pop() if len(distinct) == 1 else ""


def group_table(groups: Sequence[RunGroup], facet: str, columns: Sequence[str], key: str) -> RunGroup | None:
    """Draw a row for each group; returns the clicked one."""
    column = st.column_config
    cells: dict[str, list[Any]] = {
        "value": [group.value or "none" for group in groups],
        "runs": [group.runs for group in groups],
        "states": [group.states for group in groups],
    }
    heads: dict[str, Any] = {
        "value": column.TextColumn(facet.capitalize(), width="medium", help="Click to see its runs."),
        "runs": column.NumberColumn("Runs", width="small"),
        "states": column.TextColumn("States", width="medium"),
    }
    figures: list[tuple[str, str, list[float | None], str, str]] = [
        ("best", "Best", [group.best for group in groups], "%.4f", "Best value of all runs in the group."),
        ("mean", "Mean of best", [group.mean for group in groups], "%.4f", "Mean of the runs' best values."),
    ]
    figures += [
        (
            _own(name),
            name.removeprefix(run_query.PARAMETER),
            [group.columns[name] for group in groups],
            "",
            "Mean of the runs' last values.",
        )
        for name in columns
    ]
    for name, title, values, format_, words in figures:
        heads[name], cells[name] = number_column(title, values, format=format_, help=words)
    event: Any = st.dataframe(
        pd.DataFrame(cells), key=key, hide_index=True, height="content", placeholder="–", on_select="rerun",
        selection_mode="single-cell", alt=f"runs by {facet}", column_config=heads,
    )  # fmt: skip
    cells_ = event.selection.cells
    return groups[cells_[0][0]] if cells_ and cells_[0][0] < len(groups) else None


def _own(name: str) -> str:
    """The key of the column of a metric or parameter, distinct from all other columns."""
    return f"metric {name}"


def _worth(name: str, values: Sequence[Any]) -> bool:
    """Whether a column is shown."""
    if name in DIFFERING:  # a run that has logged nothing yet says no metric
        return len(set(values) - ({""} if name == "metric" else set())) > 1
    return name not in OPTIONAL or any(_told(value) for value in values)


def _told(value: Any) -> bool:
    """Whether a cell has a value; pandas makes NaN of None among numbers."""
    return bool(value) if isinstance(value, list) else bool(pd.notna(value)) and value != ""


def _table(
    views: Sequence[RunView], called: Mapping[str, str], columns: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The cells, column by column in their order, and the config of each column; `called`: name by run."""
    rows = [_row(view, called[view.id], columns) for view in views]
    cells = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    config = _words_columns(style.dark())
    for name, (title, format_, words) in _numbers(_one(cells.get("metric", []))).items():
        config[name], cells[name] = number_column(title, cells.get(name, []), format=format_, help=words)
    for name, (title, words) in WRITTEN.items():
        config[name] = text_column(title, cells.get(name, []), help=words)
    for name in columns:
        config[_own(name)], cells[_own(name)] = _own_column(name, cells.get(_own(name), []))
    return pd.DataFrame(cells), config


def _own_column(name: str, values: list[Any]) -> tuple[Any, list[Any]]:
    """The column of a metric (last values) or a parameter (as written; as numbers if all are): config and cells."""
    if not name.startswith(run_query.PARAMETER):
        return number_column(name, values, help="The run's last value.")
    title = name.removeprefix(run_query.PARAMETER)
    numbers = [None if value is None else run_query.as_number(value) for value in values]
    if numbers.count(None) > values.count(None):
        return st.column_config.TextColumn(title, width="small"), values
    if any(number is not None and float(f"{number:{EXACT}}") != number for number in numbers):
        texts = ["" if value is None else str(value) for value in values]
        return text_column(title, texts), texts
    return number_column(title, numbers, format=f"%{EXACT}")


def _row(view: RunView, name: str, columns: Sequence[str]) -> dict[str, Any]:
    metrics = view.metrics
    metric = names.main_metric(metrics)
    record = replace(view.record, metrics=dict(metrics))
    return {
        "name": name,
        "state": [view.state],
        "remark": view.reason
        or (f"{view.failure}: {view.cause}" if view.state == "failed" else run_query.purpose(view.record))
        or view.pruned
        or view.lost,
        **{_own(name): run_query.value(record, name) for name in columns},
        "own": ", ".join(
            name for name in dict.fromkeys([metric or "", *columns]) if own_metrics.is_own(view.record.tags, name)
        ),
        "metric": (metric or "").removeprefix("val/"),
        "best": metrics.get(names.best(metric)) if metric else None,
        "final": metrics.get(names.final(metric), metrics.get(metric)) if metric else None,
        "notebook": FACETS["notebook"](view.record),
        "model": FACETS["model"](view.record),
        "strategy": view.strategy,
        "batch": FACETS["batch"](view.record),
        "lr": FACETS["rate"](view.record),
        "staleness": metrics.get(names.STALENESS_MEAN),
        "rate": metrics.get(names.UPDATES_PER_SECOND),
        "seconds": view.seconds,
        "when": ago(view.began) if view.began else None,
        "tags": run_query.tags(view.record),
        "note": run_query.note(view.record),
    }


WRITTEN = {
    "batch": ("Batch per worker", "Samples per gradient."),
    "lr": ("Learning rate", "The learning rate that was used, after scaling."),
}


def _numbers(metric: str) -> dict[str, tuple[str, str, str | None]]:
    """Title, format and help of the fixed columns of figures. `metric`: that of all rows, "" if they differ."""
    return {
        "best": (f"Best {metric}".strip(), "%.4f", None),
        "final": ("Last", "%.4f", "The final value or, for an active run, the latest value."),
        "staleness": ("Staleness", "%.2f", "Mean staleness, in updates."),
        "rate": ("Updates/s", "%.0f", "With virtual workers: per virtual second."),
        "seconds": ("Seconds", "%.1f", "Wall time since the start."),
    }


def _words_columns(dark: bool) -> dict[str, Any]:
    column = st.column_config
    words, colours = list(COLOURS), [pair[dark] for pair in COLOURS.values()]
    return {
        "name": column.LinkColumn(
            "Run", width="medium", display_text=rf"[?&]{CALLED}=([^&]*)", alignment="left", pinned=True
        ),
        "state": column.MultiselectColumn("State", options=words, color=colours, width=92),
        "remark": column.TextColumn(
            "Why", width=260, help="Why the run is waiting, has failed or was pruned, or what the run is for."
        ),
        "own": column.TextColumn(f"{own_metrics.SIGN} Per worker", width="small", help=own_metrics.WORDS),
        "metric": column.TextColumn("Metric", width=105),
        "notebook": column.TextColumn("Notebook", width="small"),
        "model": column.TextColumn("Model", width=120),
        "strategy": column.TextColumn("Strategy", width=230),
        "when": column.TextColumn("Started", width="small"),
        "tags": column.ListColumn("Tags", width="small"),
        "note": column.TextColumn("Note", width="medium"),
    }


DIGIT_PX: Final = 7.2
"""Width of a digit 14 px high; the letters of a title are narrower on average."""
ROOM_PX: Final = 20
"""Left and right of a cell's text together."""
LEAST_PX: Final = 75
MOST_HEAD_PX: Final = 190
"""Largest width of a column for its title; a longer title is cut on the right."""
SMALL: Final = 1e-4
LARGE: Final = 1e7
EXPONENT: Final = "%.4e"


def number_column(
    title: str, values: Sequence[float | None], *, format: str = "", help: str | None = None
) -> tuple[Any, list[Any]]:
    """A column as wide as its figures (Streamlit cuts a longer number on the left): its config and its cells. The cells
    are text if one of them is NaN or infinite, which a column of numbers leaves empty.

    `format`, as for `st.column_config.NumberColumn`, is used if it shows enough digits of all values.
    """
    numbers = [float(value) for value in values if value is not None]
    if not all(map(_is_finite, numbers)):
        texts = ["" if value is None else f"{value:.5g}" if _is_finite(value) else figure(value) for value in values]
        return text_column(title, texts, help=help), texts
    chosen = format if format and _holds(format, numbers) else fitting(numbers)
    width = _column_width(title, (number_shown(chosen, value) for value in numbers))
    return st.column_config.NumberColumn(title, format=chosen, help=help, width=width), list(values)


def _is_finite(value: float) -> bool:
    return abs(value) < sys.float_info.max  # MLflow's infinity


def text_column(title: str, values: Sequence[str], *, help: str | None = None) -> Any:
    """The config of a column of numbers that are shown as they were written."""
    return st.column_config.TextColumn(title, help=help, alignment="right", width=_column_width(title, values))


def fitting(numbers: Sequence[float]) -> str:
    """A format with five digits: whole numbers without a point, an exponent if a figure would be long."""
    if all(value.is_integer() and abs(value) < 1e15 for value in numbers):
        return "%d"
    sizes = [abs(value) for value in numbers if value]
    return EXPONENT if sizes and (min(sizes) < SMALL or max(sizes) >= LARGE) else "%.5g"


def number_shown(format: str, value: float) -> str:
    """The text that the browser shows: JavaScript writes no exponent from 0.000001 up to 1e21."""
    if not format.endswith("g"):
        return format % value
    rounded = float(format % value)
    return f"{Decimal(repr(rounded)):f}".removesuffix(".0") if 1e-6 <= abs(rounded) < 1e21 else f"{rounded:g}"


def _holds(format: str, numbers: Sequence[float]) -> bool:
    """Whether the format shows enough digits of each value and, with fixed places, no long number."""
    if format.endswith("g"):
        return True
    places = int(format.strip("%.f") or 0)
    return all(value == 0 or 10 ** min(0, 2 - places) <= abs(value) < LARGE for value in numbers)


def _column_width(title: str, texts: Any) -> int:
    longest = max((len(text) for text in texts), default=0)
    head = min(MOST_HEAD_PX, round(len(title) * 6.6) + ROOM_PX)
    return max(LEAST_PX, head, round(longest * DIGIT_PX) + ROOM_PX)
