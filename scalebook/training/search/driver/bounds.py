"""Points that need not be run: those beyond the memory wall, and those that were run before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.config.description import Description
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.config.search.point import canonical, resolve
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.failures import FailureClass
from scalebook.training.search.study.trials import TrialRecord

WEIGHTLESS: Final = ("batch_size", "learning_rate", "lr", "workers")
"""Last words of dimensions that say nothing about a process's memory besides its batch."""


@dataclass(frozen=True)
class Hit:
    """A trial that ran out of memory."""

    trial: int
    batch: int
    """Samples per worker."""


class MemoryWall:
    """Batch sizes that ran out of memory. One as large is not tried again with all else that takes memory the same."""

    def __init__(self, spec: SearchSpec, description: Description) -> None:
        self.spec, self.description = spec, description
        self.hits: dict[tuple[tuple[str, str], ...], Hit] = {}
        """The smallest batch that did not fit, by the point's other dimensions."""

    def learn(self, records: Iterable[TrialRecord]) -> None:
        """Take in trials that ended out of memory; others are passed over."""
        for record in records:
            if record.state != "infeasible" or record.failure != FailureClass.OUT_OF_MEMORY.value or not record.runs:
                continue
            batch, key = self._batch(record.point), self._others(record.point)
            if batch is not None and (key not in self.hits or batch < self.hits[key].batch):
                self.hits[key] = Hit(record.number, batch)

    def beyond(self, point: Mapping[str, Any]) -> str:
        """Why the point would run out of memory, "" where nothing says so."""
        hit, batch = self.hits.get(self._others(point)), self._batch(point)
        if hit is None or batch is None or batch < hit.batch:
            return ""
        return f"not run: trial {hit.trial} ran out of memory with {hit.batch} samples per worker, this has {batch}"

    def words(self) -> str:
        """The known limits as a sentence for people; "" while none is known."""
        least = sorted({hit.batch for hit in self.hits.values()})
        return f"memory ends at {' or '.join(map(str, least[:3]))} samples per worker" if least else ""

    def _batch(self, point: Mapping[str, Any]) -> int | None:
        try:
            return workload(resolve(self.spec, point, self.description), self.description).batch_per_worker
        except ConfigError:
            return None

    def _others(self, point: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, repr(value)) for name, value in point.items() if not _weightless(name)))


def _weightless(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in WEIGHTLESS


class Repeats:
    """Points that have been tried: a trial that would be run again with the same seeds is not."""

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self._ended: dict[tuple[tuple[str, str], ...], TrialRecord] = {}

    def learn(self, records: Iterable[TrialRecord]) -> None:
        for record in records:
            if record.state in ("finished", "pruned", "infeasible") and record.runs:
                self._ended.setdefault(self._key(record.point), record)

    def of(self, point: Mapping[str, Any]) -> TrialRecord | None:
        """The trial that has tried this point already."""
        return self._ended.get(self._key(point))

    def _key(self, point: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, repr(value)) for name, value in canonical(self.spec, point).items()))
