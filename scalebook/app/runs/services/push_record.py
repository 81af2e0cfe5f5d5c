"""What became of the pushes of a run's workers, as the run wrote it down (training/callbacks/push_recorder.py)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scalebook.app.runs.services import artifacts
from scalebook.app.runs.services.runs import PARTS
from scalebook.training.files import records
from scalebook.training.files.records import Broken
from scalebook.training.ps.coordination import measures
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader


@dataclass(frozen=True)
class Pushes:
    """Pushes of one worker, at one shard or at all of them. `age_s` and `drift` are means, None where not measured."""

    worker: int
    section: int
    shard: int
    applied: int
    dropped: int
    duplicates: int
    age_s: float | None
    drift: float | None
    pushed_bytes: int = 0
    pulled_bytes: int = 0


@dataclass(frozen=True)
class PushRecord:
    """`counts[worker][i]`: pushes of staleness i, the last bin "or more"; `seconds[worker]`: part -> s."""

    counts: list[list[int]]
    seconds: list[dict[str, float]] = field(default_factory=list)
    shards: list[Pushes] = field(default_factory=list)

    def mean_staleness(self, worker: int) -> float | None:
        """Mean staleness of one worker's pushes, in versions; None before the first."""
        return _known(measures.mean_staleness(self.counts[worker : worker + 1]))

    @property
    def parts(self) -> int:
        """Shards of all optimizers."""
        return len({(shard.section, shard.shard) for shard in self.shards})

    def shares(self, worker: int | None = None) -> dict[str, float]:
        """Where the time of one worker, or of all, went: part -> share; empty where that is not known."""
        mine = self.seconds if worker is None else self.seconds[worker : worker + 1]
        return measures.shares({part: sum(seconds.get(part, 0.0) for seconds in mine) for part in PARTS})

    def by_worker(self) -> list[Pushes]:
        """A row for each worker, over all shards and optimizers.

        A gradient counts once, into however many shards it was cut: `applied` is the count of the first shard.
        """
        workers = sorted({shard.worker for shard in self.shards})
        return [self._of([shard for shard in self.shards if shard.worker == worker]) for worker in workers]

    def _of(self, rows: list[Pushes]) -> Pushes:
        applied = sum(row.applied for row in rows if row.shard == 0)
        drift = measures.whole_drift(((row.section, row.shard), row.drift, row.applied) for row in rows)
        return Pushes(
            rows[0].worker,
            0,
            0,
            applied,
            sum(row.dropped for row in rows),
            sum(row.duplicates for row in rows),
            _known(measures.weighted_mean([(row.age_s, row.applied) for row in rows])),
            _known(drift),
            sum(row.pushed_bytes for row in rows),
            sum(row.pulled_bytes for row in rows),
        )


@dataclass(frozen=True)
class _Told:
    counts: list[list[int]]
    workers: list[dict[str, float]] = field(default_factory=list)
    shards: list[Pushes] = field(default_factory=list)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def in_folder(folder: Path) -> PushRecord | None:
    """The record in a job's folder; None where there is none (yet)."""

    def read(name: str) -> bytes | None:
        try:
            return (folder / name).read_bytes()
        except OSError:
            return None

    return _record(read)


def in_store(reader: RunReader, run_id: str) -> PushRecord | None:
    """The record among a run's artifacts; None where there is none."""
    return _record(lambda name: artifacts.read(reader, run_id, name))


def _record(read: Callable[[str], bytes | None]) -> PushRecord | None:
    """Runs of before `pushes.json` have the counts of staleness alone. None also where it cannot be read."""
    for name in (names.PUSHES_JSON, names.STALENESS_JSON):
        if content := read(name):
            try:
                content_ = records.parse(Path(name), content, _Told)
            except Broken:
                continue
            return PushRecord(content_.counts, content_.workers, content_.shards)
    return None
