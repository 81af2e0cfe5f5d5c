"""What runs are called where several stand together: those that read alike say in what they differ."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord


def labels(records: Sequence[RunRecord], title: Callable[[RunRecord], str]) -> dict[str, str]:
    """By id, a label of each run: its title and, as far as others have the same, its rate, when it began, its id."""
    found = {record.id: title(record) for record in records}
    for more in (_rate, _began, lambda record: record.id[:6]):
        found = _told_apart(found, {record.id: more(record) for record in records})
    return found


def _told_apart(known: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """With `more` where labels are alike and it differs among those."""
    alike = Counter(known.values())
    differing = {label for label in alike if len(set(_of(known, more, label))) > 1}
    return {
        run: f"{label} · {more[run]}" if label in differing and more[run] else label for run, label in known.items()
    }


def _of(known: Mapping[str, str], more: Mapping[str, str], label: str) -> Iterable[str]:
    return (more[run] for run, said in known.items() if said == label)


def _rate(record: RunRecord) -> str:
    rate = record.tags.get(names.TAG_LR_SCALED) or record.tags.get(names.TAG_LR_ASKED)
    return f"lr {float(rate):g}" if rate else ""


def _began(record: RunRecord) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(record.started)) if record.started else ""
