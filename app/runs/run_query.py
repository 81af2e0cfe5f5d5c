"""Which runs the list shows and in which order: filters, groups and columns over records in memory; and saved views."""

import math
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlencode

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import records
from scalebook.training.experiments import strategy_words
from scalebook.training.tracking import RunRecord, directions, names, notes

LONGEST_TEXT: Final = 200
"""Characters of the search text."""
OURS: Final = ("mlflow.", "scalebook.")
"""Prefixes of tags that no person has given."""


def _batch(record: RunRecord) -> str:
    return record.tags.get(names.TAG_BATCH_PER_WORKER, "")


def _rate(record: RunRecord) -> str:
    written = record.tags.get(names.TAG_LR_SCALED) or record.tags.get(names.TAG_LR_ASKED, "")
    number = as_number(written)
    return written if number is None else f"{number:g}"


def _strategy(record: RunRecord) -> str:
    tags = record.tags
    strategy, rule, workers = (tags.get(key) for key in (names.TAG_STRATEGY, names.TAG_RULE, names.TAG_WORKERS))
    return strategy_words(strategy or "", rule, workers, names.is_simulated(tags))


FACETS: Final[Mapping[str, Callable[[RunRecord], str]]] = {
    "state": lambda record: record.outcome,
    "notebook": lambda record: Path(record.notebook or "").stem,
    "model": lambda record: record.tags.get(names.TAG_MODEL, "").rsplit(".", 1)[-1],
    "strategy": _strategy,
    "batch": _batch,
    "rate": _rate,
}
"""The values that runs are filtered and grouped by; "" if a run has none. The batch is that of a worker."""
ORDERS: Final[Mapping[str, Callable[[RunRecord], float | str | None]]] = {
    "started": lambda record: record.started,
    "name": lambda record: record.title.lower(),
    "notebook": FACETS["notebook"],
    "state": FACETS["state"],
    "model": FACETS["model"],
    "strategy": _strategy,
    "batch": lambda record: as_number(_batch(record)),
    "rate": lambda record: as_number(_rate(record)),
    "time": lambda record: record.ended - record.started if record.ended else None,
}
"""The values that runs are sorted by; beside these, any metric or parameter."""
PARAMETER: Final = "params."
"""Prefix that tells a parameter from a metric, as in MLflow's own filters: `params.lr`."""
MOST_VALUES: Final = 200
"""Choices offered for a parameter that is not a number."""


@dataclass(frozen=True)
class ValueRange:
    """A range that includes both ends; None leaves an end open."""

    low: float | None = None
    high: float | None = None

    def has(self, value: float | None) -> bool:
        """Whether the value lies in the range; None and NaN do not."""
        if value is None or math.isnan(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __bool__(self) -> bool:
        return (self.low, self.high) != (None, None)

    @property
    def words(self) -> str:
        if self.low is None or self.high is None:
            return f"at least {self.low:g}" if self.low is not None else f"at most {self.high:g}"
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class RunQuery:
    """What the list is asked to show; each field is a query parameter of the page."""

    find: str = ""
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Facet -> the values that pass; an empty list lets all pass."""
    tags: Sequence[str] = ()
    """A run passes if it has all of them."""
    trials: bool = False
    """Whether trials of searches are shown too."""
    sort: str = "started"
    down: bool = True
    tests: bool = False
    """Whether to show runs that only measured or tested a config, for Plan, learning rates or the largest batch."""
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    """Metric or numeric parameter -> the range that passes."""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Parameter -> the values that pass; an empty list lets all pass."""

    @property
    def narrows(self) -> bool:
        return bool(
            self.find or self.tags or any(any(each.values()) for each in (self.facets, self.ranges, self.values))
        )


@dataclass(frozen=True)
class RunGroup:
    """The runs with one value of a facet. `best` and `mean` are taken over each run's best value of the main metric."""

    value: str
    runs: int
    states: str
    best: float | None
    mean: float | None
    columns: Mapping[str, float | None]
    """Metric or numeric parameter -> its mean."""


def select_runs(records: Iterable[RunRecord], query: RunQuery) -> list[RunRecord]:
    """The records that pass, sorted. Records without the value to sort by come last in both directions."""
    passing = [record for record in records if _passes(record, query)]
    keys = {record.id: _order(record, query.sort) for record in passing}
    ordered = sorted(
        (record for record in passing if keys[record.id] is not None),
        key=lambda record: cast(Any, keys[record.id]),  # all of them numbers, or all words
        reverse=query.down,
    )
    return [*ordered, *(record for record in passing if keys[record.id] is None)]


def _order(record: RunRecord, sort: str) -> float | str | tuple[bool, float | str] | None:
    if sort not in ORDERS and sort.startswith(PARAMETER):
        text, number_ = str(value(record, sort) or ""), number(record, sort)
        return (False, number_) if number_ is not None else (True, text) if text else None  # numbers before words
    key = ORDERS[sort](record) if sort in ORDERS else value(record, sort)
    return None if isinstance(key, float) and math.isnan(key) else key


def value(record: RunRecord, column: str) -> float | str | None:
    """The last value of a metric, or the value of a parameter; None if the run has none."""
    if column.startswith(PARAMETER):
        return record.params.get(column.removeprefix(PARAMETER))
    return infinite(record.metrics.get(column))


def infinite(metric: float | None) -> float | None:
    """The metric, with infinity again where MLflow stores the largest float for it."""
    return math.copysign(math.inf, metric) if metric is not None and abs(metric) >= sys.float_info.max else metric


def number(record: RunRecord, column: str) -> float | None:
    """`value` as a number, else None."""
    recorded = value(record, column)
    return as_number(recorded) if isinstance(recorded, str) else recorded


def as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parameter_columns(columns: Iterable[str]) -> list[str]:
    """The names of the parameters among `columns`, without their prefix."""
    return [column.removeprefix(PARAMETER) for column in columns if column.startswith(PARAMETER)]


def with_parameters(records: Iterable[RunRecord], parameters: Mapping[str, Mapping[str, str]]) -> list[RunRecord]:
    """The records with `parameters` set from name -> run's id -> value."""
    if not parameters:
        return list(records)
    return [
        replace(record, params={name: values[record.id] for name, values in parameters.items() if record.id in values})
        for record in records
    ]


def choices(values: Mapping[str, str]) -> list[str] | None:
    """The choices for a parameter, given its values by run; None if all are numbers, which have a range instead."""
    different = sorted(set(values.values()))
    return None if all(as_number(text) is not None for text in different) else different[:MOST_VALUES]


def is_listed(record: RunRecord, *, trials: bool, tests: bool = False) -> bool:
    """Whether a run is is_listed; searches themselves never are, they have their own page."""
    if names.TAG_SEARCH in record.tags or (names.TAG_TEST in record.tags and not tests):
        return False
    return trials or names.TAG_TRIAL not in record.tags


def purpose(record: RunRecord) -> str:
    """The purpose of a run that only measured or tested a config: `measured for Plan`; "" for all others."""
    test = record.tags.get(names.TAG_TEST, "")
    return "measured for Plan" if test == names.TEST_PLAN else f"test: {test}" if test else ""


def _passes(record: RunRecord, query: RunQuery) -> bool:
    if not is_listed(record, trials=query.trials, tests=query.tests):
        return False
    if any(values and FACETS[facet](record) not in values for facet, values in query.facets.items()):
        return False
    if not set(query.tags) <= set(tags(record)):
        return False
    if not all(range_.has(number(record, name)) for name, range_ in query.ranges.items() if range_):
        return False
    if any(chosen and value(record, name) not in chosen for name, chosen in query.values.items()):
        return False
    words = query.find[:LONGEST_TEXT].lower()
    return words in f"{record.name}\n{record.title}\n{note(record)}\n{' '.join(tags(record))}".lower()


def options(records: Iterable[RunRecord], facet: str) -> list[str]:
    """The values of a facet that occur, numbers sorted by size."""
    values = {FACETS[facet](record) for record in records} - {""}
    return sorted(values, key=lambda value: (as_number(value) is None, as_number(value) or 0.0, value))


def metrics(records: Iterable[RunRecord]) -> list[str]:
    """All metrics of the runs, without those of single workers and of the machine."""
    others = ("worker_", names.SYSTEM)
    return sorted({name for record in records for name in record.metrics if not name.startswith(others)})


def groups(records: Sequence[RunRecord], facet: str, columns: Sequence[str] = ()) -> list[RunGroup]:
    """A group for each value of the facet, in order; the runs without a value last."""
    by_value: dict[str, list[RunRecord]] = {}
    for record in records:
        by_value.setdefault(FACETS[facet](record), []).append(record)
    main = names.main_metric(name for record in records for name in record.metrics)
    return [
        _group(value, by_value[value], main, columns)
        for value in [*options(records, facet), *([""] if "" in by_value else [])]
    ]


def _group(value: str, records: Sequence[RunRecord], main: str | None, columns: Sequence[str]) -> RunGroup:
    states = Counter(record.outcome for record in records)
    best = _values(records, names.best(main)) if main else []
    lower = main is None or directions.of_runs(main, None, [record.tags for record in records]).lower
    return RunGroup(
        value=value,
        runs=len(records),
        states=", ".join(f"{count} {word}" for word, count in states.most_common()),
        best=None if not best else min(best) if lower else max(best),
        mean=statistics.fmean(best) if best else None,
        columns={name: statistics.fmean(values) if (values := _values(records, name)) else None for name in columns},
    )


def _values(records: Iterable[RunRecord], column: str) -> list[float]:
    values = (number(record, column) for record in records)
    return [value for value in values if value is not None and not math.isnan(value)]


def note(record: RunRecord) -> str:
    return notes.split_note(record.tags.get(names.TAG_NOTE, ""), record.id)[0]


def tags(record: RunRecord) -> list[str]:
    """The tags that people have given to a run: `good`, or `key=value` if the tag has a value."""
    own_tags = ((key, value) for key, value in sorted(record.tags.items()) if not key.startswith(OURS))
    return [f"{key}={value}" if value else key for key, value in own_tags]


MOST_VIEWS: Final = 100
LONGEST_NAME: Final = 60
LONGEST_ADDRESS: Final = 8000
_LOCK = threading.Lock()  # of this server, between reading and replacing


@dataclass(frozen=True)
class SavedView:
    """A named view of the list. `address` is its query string, such as `columns=params.lr&model=MLP`."""

    name: str
    address: str

    @property
    def parameters(self) -> dict[str, list[str]]:
        return parse_qs(self.address)


@dataclass(frozen=True)
class SavedViews:
    views: list[SavedView] = field(default_factory=list)


def views_file(workspace: Workspace) -> Path:
    return workspace.hidden / "views.json"


def saved_views(workspace: Workspace) -> list[SavedView]:
    """All views of the workspace, sorted by name, without invalid ones. Raises Broken if the file cannot be read."""
    saved = records.load(views_file(workspace), SavedViews) or SavedViews()
    views = {view.name: view for view in saved.views if not view_problem(view)}
    return sorted(views.values(), key=lambda view: view.name.lower())[:MOST_VIEWS]


def save_view(workspace: Workspace, name: str, parameters: dict[str, list[str]]) -> None:
    """Save a view; one of the same name is replaced. ConfigError for an invalid view or a broken file."""
    view = SavedView(" ".join(name.split()), urlencode(parameters, doseq=True))
    if why := view_problem(view):
        raise ConfigError("view", why, "Choose another name." if view.name == "" or len(view.name) > LONGEST_NAME
                          else "Remove some settings.")  # fmt: skip
    with _LOCK:
        others = [other for other in saved_views(workspace) if other.name != view.name]
        if len(others) >= MOST_VIEWS:
            raise ConfigError("view", f"exceeds the limit of {MOST_VIEWS} saved views", "Delete another view first.")
        _write_views(workspace, [*others, view])


def delete_view(workspace: Workspace, name: str) -> None:
    with _LOCK:
        _write_views(workspace, [other for other in saved_views(workspace) if other.name != name])


def _write_views(workspace: Workspace, views: list[SavedView]) -> None:
    workspace.create()
    records.save(views_file(workspace), SavedViews(views))


def view_problem(view: SavedView) -> str:
    """Why the view is invalid, "" if it is valid: the file may come from somebody else."""
    if not view.name.strip() or not view.name.isprintable() or len(view.name) > LONGEST_NAME:
        return f"needs a name of 1 to {LONGEST_NAME} characters"
    if len(view.address) > LONGEST_ADDRESS:
        return f"has an address of more than {LONGEST_ADDRESS:,} characters"
    try:
        parse_qs(view.address, max_num_fields=MOST_VIEWS)
    except ValueError:
        return f"has more than {MOST_VIEWS} settings"
    return ""
