"""Which runs a list shows and in which order: filters, groups, columns. Plain functions over records in memory."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from scalebook.training.config.workload import strategy_words
from scalebook.training.tracking import directions, names, notes
from scalebook.training.tracking.reading import RunRecord

LONGEST_TEXT: Final = 200
"""Characters of what is looked for."""

OURS: Final = ("mlflow.", "scalebook.")
"""How tags begin that no person has given."""


def _batch(record: RunRecord) -> str:
    return record.tags.get(names.TAG_BATCH_PER_WORKER, "")


def _rate(record: RunRecord) -> str:
    written = record.tags.get(names.TAG_LR_SCALED) or record.tags.get(names.TAG_LR_ASKED, "")
    number = _number(written)
    return written if number is None else f"{number:g}"


def _strategy(record: RunRecord) -> str:
    tags = record.tags
    strategy, rule, workers = (tags.get(key) for key in (names.TAG_STRATEGY, names.TAG_RULE, names.TAG_WORKERS))
    return strategy_words(strategy or "", rule, workers, names.is_virtual(tags))


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
    "batch": lambda record: _number(_batch(record)),
    "rate": lambda record: _number(_rate(record)),
    "time": lambda record: record.ended - record.started if record.ended else None,
}
"""What runs are sorted by; beside these, any metric."""


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

    @property
    def narrows(self) -> bool:
        return bool(self.find or self.tags or any(self.facets.values()))


@dataclass(frozen=True)
class RunGroup:
    """The runs that have one value of a facet. `best` and `mean` are of the best values of the metric that is shown."""

    value: str
    runs: int
    states: str
    best: float | None
    mean: float | None
    columns: Mapping[str, float | None]
    """Metric -> its mean."""


def shown(records: Iterable[RunRecord], query: RunQuery) -> list[RunRecord]:
    """Those that pass, in order. What has no value to be sorted by stands last, whichever way."""
    passing = [record for record in records if _passes(record, query)]
    keys = {record.id: _order(record, query.sort) for record in passing}
    known = sorted(
        (record for record in passing if keys[record.id] is not None),
        key=lambda record: cast(Any, keys[record.id]),  # all of them numbers, or all words
        reverse=query.down,
    )
    return [*known, *(record for record in passing if keys[record.id] is None)]


def _order(record: RunRecord, sort: str) -> float | str | None:
    value = ORDERS[sort](record) if sort in ORDERS else record.metrics.get(sort)
    return None if isinstance(value, float) and math.isnan(value) else value


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
    words = query.find[:LONGEST_TEXT].lower()
    return words in f"{record.name}\n{record.cell}\n{note(record)}\n{' '.join(tags(record))}".lower()


def options(records: Iterable[RunRecord], facet: str) -> list[str]:
    """The values that occur, numbers by size."""
    values = {FACETS[facet](record) for record in records} - {""}
    return sorted(values, key=lambda value: (_number(value) is None, _number(value) or 0.0, value))


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


def _group(value: str, mine: Sequence[RunRecord], main: str | None, columns: Sequence[str]) -> RunGroup:
    states = Counter(record.outcome for record in mine)
    best = _values(mine, names.best(main)) if main else []
    lower = main is None or directions.of_runs(main, None, [record.tags for record in mine]).lower
    return RunGroup(
        value=value,
        runs=len(mine),
        states=", ".join(f"{count} {word}" for word, count in states.most_common()),
        best=None if not best else min(best) if lower else max(best),
        mean=statistics.fmean(best) if best else None,
        columns={name: statistics.fmean(values) if (values := _values(mine, name)) else None for name in columns},
    )


def _values(records: Iterable[RunRecord], metric: str) -> list[float]:
    values = (record.metrics.get(metric) for record in records)
    return [value for value in values if value is not None and not math.isnan(value)]


def note(record: RunRecord) -> str:
    return notes.parted(record.tags.get(names.TAG_NOTE, ""), record.id)[0]


def tags(record: RunRecord) -> list[str]:
    """What people have said of it: `good`, or `key=value` of a tag that has a value."""
    given = ((key, value) for key, value in sorted(record.tags.items()) if not key.startswith(OURS))
    return [f"{key}={value}" if value else key for key, value in given]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
