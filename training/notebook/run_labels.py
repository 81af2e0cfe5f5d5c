"""Labels of runs that stand together: those that read alike say in what they differ."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from scalebook.training.tracking import RunRecord, names


def labels(records: Sequence[RunRecord], title: Callable[[RunRecord], str]) -> dict[str, str]:
    """A label of each run, by id: its title and, if others have the same, its rate, when it began, its id."""
    by_id = {record.id: title(record) for record in records}
    for more in (_rate, _began, lambda record: record.id[:6]):
        by_id = _told_apart(by_id, {record.id: more(record) for record in records})
    return by_id


def _told_apart(labels: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """With `more` where labels are alike and it differs among those."""
    alike = Counter(labels.values())
    differing = {label for label in alike if len(set(_of(labels, more, label))) > 1}
    return {
        run: f"{label} · {more[run]}" if label in differing and more[run] else label for run, label in labels.items()
    }


def _of(labels: Mapping[str, str], more: Mapping[str, str], label: str) -> Iterable[str]:
    return (more[run] for run, text in labels.items() if text == label)


def _rate(record: RunRecord) -> str:
    rate = record.tags.get(names.TAG_LR_SCALED) or record.tags.get(names.TAG_LR_ASKED)
    return f"lr {float(rate):g}" if rate else ""


def _began(record: RunRecord) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(record.started)) if record.started else ""
