"""Which runs the list shows and in which order: filters, groups, columns, over records in memory; and views with a
name.
"""

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

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.workload import strategy_words
from scalebook.training.tracking import directions, names, notes
from scalebook.training.tracking.run_reader import RunRecord

LONGEST_TEXT: Final = 200
"""Characters of what is looked for."""
OURS: Final = ("mlflow.", "scalebook.")
"""How tags begin that no person has given."""


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
"""What runs are filtered and grouped by; "" where a run has none of it. The batch is that of a worker."""
ORDERS: Final[Mapping[str, Callable[[RunRecord], float | str | None]]] = {
    "started": lambda record: record.started,
    "name": lambda record: record.name.lower(),
    "notebook": FACETS["notebook"],
    "state": FACETS["state"],
    "model": FACETS["model"],
    "strategy": _strategy,
    "batch": lambda record: as_number(_batch(record)),
    "rate": lambda record: as_number(_rate(record)),
    "time": lambda record: record.ended - record.started if record.ended else None,
}
"""What runs are sorted by; beside these, any metric or parameter."""
PARAMETER: Final = "params."
"""How a parameter is written where metrics are named too, as in MLflow's own filters: `params.lr`."""
MOST_VALUES: Final = 200
"""Of a parameter that is no number, to choose from."""


@dataclass(frozen=True)
class ValueRange:
    """Both ends belong to it; None is no end."""

    low: float | None = None
    high: float | None = None

    def has(self, value: float | None) -> bool:
        """Never what is no number."""
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
    """What a person asked for; each is a query parameter of the page."""

    find: str = ""
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Facet -> the values that pass; one that is empty lets all pass."""
    tags: Sequence[str] = ()
    """A run passes that has all of them."""
    trials: bool = False
    """Whether trials of searches are shown among the others."""
    sort: str = "started"
    down: bool = True
    tests: bool = False
    """Whether runs are shown that only measured or tested a config, for Plan, learning rates or the largest batch."""
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    """Metric, or parameter that is a number -> where it lies in a run that passes."""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Parameter -> the values that pass; one that is empty lets all pass."""

    @property
    def narrows(self) -> bool:
        return bool(
            self.find or self.tags or any(any(each.values()) for each in (self.facets, self.ranges, self.values))
        )


@dataclass(frozen=True)
class RunGroup:
    """The runs that have one value of a facet. `best` and `mean` are of the best values of the metric that is shown."""

    value: str
    runs: int
    states: str
    best: float | None
    mean: float | None
    columns: Mapping[str, float | None]
    """Metric, or parameter that is a number -> its mean."""


def shown(records: Iterable[RunRecord], query: RunQuery) -> list[RunRecord]:
    """Those that pass, in order. What has no value to be sorted by stands last, whichever way."""
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
    """The last value of a metric, or what a parameter was; None where the run has none."""
    if column.startswith(PARAMETER):
        return record.params.get(column.removeprefix(PARAMETER))
    return infinite(record.metrics.get(column))


def infinite(metric: float | None) -> float | None:
    """MLflow keeps the largest number there is in place of infinity."""
    return math.copysign(math.inf, metric) if metric is not None and abs(metric) >= sys.float_info.max else metric


def number(record: RunRecord, column: str) -> float | None:
    """`value`, where that is a number."""
    recorded = value(record, column)
    return as_number(recorded) if isinstance(recorded, str) else recorded


def as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def named(columns: Iterable[str]) -> list[str]:
    """The parameters among columns, without what marks them."""
    return [column.removeprefix(PARAMETER) for column in columns if column.startswith(PARAMETER)]


def with_parameters(records: Iterable[RunRecord], parameters: Mapping[str, Mapping[str, str]]) -> list[RunRecord]:
    """The runs with these parameters: name -> run's id -> value."""
    if not parameters:
        return list(records)
    return [
        replace(record, params={name: values[record.id] for name, values in parameters.items() if record.id in values})
        for record in records
    ]


def choices(values: Mapping[str, str]) -> list[str] | None:
    """The values of a parameter to choose from, by run; None where all are numbers, which have a range."""
    different = sorted(set(values.values()))
    return None if all(as_number(text) is not None for text in different) else different[:MOST_VALUES]


def listed(record: RunRecord, *, trials: bool, tests: bool = False) -> bool:
    """Whether a run stands in the list: the searches themselves have a page of their own."""
    if names.TAG_SEARCH in record.tags or (names.TAG_TEST in record.tags and not tests):
        return False
    return trials or names.TAG_TRIAL not in record.tags


def purpose(record: RunRecord) -> str:
    """What a run was for that only measured or tested a config: `measured for Plan`; "" of all others."""
    test = record.tags.get(names.TAG_TEST, "")
    return "measured for Plan" if test == names.TEST_PLAN else f"test: {test}" if test else ""


def _passes(record: RunRecord, query: RunQuery) -> bool:
    if not listed(record, trials=query.trials, tests=query.tests):
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
    return words in f"{record.name}\n{record.cell}\n{note(record)}\n{' '.join(tags(record))}".lower()


def options(records: Iterable[RunRecord], facet: str) -> list[str]:
    """The values that occur, numbers by size."""
    values = {FACETS[facet](record) for record in records} - {""}
    return sorted(values, key=lambda value: (as_number(value) is None, as_number(value) or 0.0, value))


def metrics(records: Iterable[RunRecord]) -> list[str]:
    """All metrics that any of the runs has, without those of single workers and of the machine."""
    others = ("worker_", names.SYSTEM)
    return sorted({name for record in records for name in record.metrics if not name.startswith(others)})


def groups(records: Sequence[RunRecord], facet: str, columns: Sequence[str] = ()) -> list[RunGroup]:
    """One for each value, in their order; those without a value last."""
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
    return notes.parted(record.tags.get(names.TAG_NOTE, ""), record.id)[0]


def tags(record: RunRecord) -> list[str]:
    """What people have said of it: `good`, or `key=value` of a tag that has a value."""
    own_tags = ((key, value) for key, value in sorted(record.tags.items()) if not key.startswith(OURS))
    return [f"{key}={value}" if value else key for key, value in own_tags]


MOST_VIEWS: Final = 100
LONGEST_NAME: Final = 60
LONGEST_ADDRESS: Final = 8000
_LOCK = threading.Lock()  # of this server, between reading and replacing


@dataclass(frozen=True)
class SavedView:
    """A view of the list that has a name. `address`: of the list, such as `columns=params.lr&model=MLP`."""

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
    """All of the workspace, by name; without what cannot be one. Raises Broken where the file is none of ours."""
    saved = records.load(views_file(workspace), SavedViews) or SavedViews()
    views = {view.name: view for view in saved.views if not view_problem(view)}
    return sorted(views.values(), key=lambda view: view.name.lower())[:MOST_VIEWS]


def save_view(workspace: Workspace, name: str, parameters: dict[str, list[str]]) -> None:
    """Keep a view, in place of one of the same name. ConfigError where it cannot be, or the file is broken."""
    view = SavedView(" ".join(name.split()), urlencode(parameters, doseq=True))
    if why := view_problem(view):
        raise ConfigError("view", why, "Choose another name." if view.name == "" or len(view.name) > LONGEST_NAME
                          else "Leave something out.")  # fmt: skip
    with _LOCK:
        others = [other for other in saved_views(workspace) if other.name != view.name]
        if len(others) >= MOST_VIEWS:
            raise ConfigError("view", f"would be one of more than {MOST_VIEWS}", "Delete one first.")
        _write_views(workspace, [*others, view])


def delete_view(workspace: Workspace, name: str) -> None:
    with _LOCK:
        _write_views(workspace, [other for other in saved_views(workspace) if other.name != name])


def _write_views(workspace: Workspace, views: list[SavedView]) -> None:
    workspace.create()
    records.save(views_file(workspace), SavedViews(views))


def view_problem(view: SavedView) -> str:
    """Why it is no view, "" where it is one: the file may be a stranger's."""
    if not view.name.strip() or not view.name.isprintable() or len(view.name) > LONGEST_NAME:
        return f"needs a name of 1 to {LONGEST_NAME} letters"
    if len(view.address) > LONGEST_ADDRESS:
        return f"has an address of more than {LONGEST_ADDRESS:,} letters"
    try:
        parse_qs(view.address, max_num_fields=MOST_VIEWS)
    except ValueError:
        return f"says more than {MOST_VIEWS} things"
    return ""
