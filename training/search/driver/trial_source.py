"""Chooses the next point: one given by hand, then the sampler's, but none that need not be run.

Points beyond the memory wall, and those that were run before, need not be run.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.base import ConfigError, FailureClass
from scalebook.training.experiments.search import SearchSpec, canonical, resolve
from scalebook.training.search.driver.trial_outcome import BY_HAND
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.search_requests import waiting_points
from scalebook.training.search.study.study import AskedTrial, Study
from scalebook.training.search.study.trials import TrialRecord

WEIGHTLESS: Final = ("batch_size", "learning_rate", "lr", "workers")
"""Last words of dimensions on which a process's memory does not depend, apart from the batch itself."""


class MemoryWall:
    """Batch sizes that ran out of memory. As large a one is not tried again with all else that takes memory the
    same."""

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self.hits: dict[tuple[tuple[str, str], ...], OutOfMemoryTrial] = {}
        """The smallest batch that did not fit, by the point's other dimensions."""

    def learn(self, records: Iterable[TrialRecord]) -> None:
        """Note the trials that ran out of memory."""
        for record in records:
            if record.state != "infeasible" or record.failure != FailureClass.OUT_OF_MEMORY.value or not record.runs:
                continue
            batch, key = self._batch(record.point), self._others(record.point)
            if batch is not None and (key not in self.hits or batch < self.hits[key].batch):
                self.hits[key] = OutOfMemoryTrial(record.number, batch)

    def beyond(self, point: Mapping[str, Any]) -> str:
        """Why the point would run out of memory, "" where nothing says so."""
        hit, batch = self.hits.get(self._others(point)), self._batch(point)
        if hit is None or batch is None or batch < hit.batch:
            return ""
        return (
            f"not run: trial {hit.trial} ran out of memory with {hit.batch} samples per worker, and this trial "
            f"has {batch}"
        )

    def words(self) -> str:
        """The known limits as a sentence for people; "" while none is known."""
        least = sorted({hit.batch for hit in self.hits.values()})
        return f"out of memory with {' or '.join(map(str, least[:3]))} samples per worker, or more" if least else ""

    def _batch(self, point: Mapping[str, Any]) -> int | None:
        try:
            return resolve(self.spec, point).batch.per_worker
        except ConfigError:
            return None

    def _others(self, point: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, repr(value)) for name, value in point.items() if not _weightless(name)))


class TriedPoints:
    """Points that have been tried; the same point with the same seeds is not run again."""

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self._ended: dict[tuple[tuple[str, str], ...], TrialRecord] = {}

    def learn(self, records: Iterable[TrialRecord]) -> None:
        for record in records:
            if record.state in ("finished", "pruned", "infeasible") and record.runs:
                self._ended.setdefault(self._key(record.point), record)

    def of(self, point: Mapping[str, Any]) -> TrialRecord | None:
        """The trial that has already tried this point already."""
        return self._ended.get(self._key(point))

    def _key(self, point: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, repr(value)) for name, value in canonical(self.spec, point).items()))


class TrialSource:
    """Asks the study for points, and answers at once those whose end is known.

    `began` is when the driver began, by time.monotonic(), s.
    """

    def __init__(self, folder: SearchFolder, study: Study, spec: SearchSpec) -> None:
        self.folder, self.study, self.spec = folder, study, spec
        self.wall, self.repeats = MemoryWall(spec), TriedPoints(spec)
        self.records: Sequence[TrialRecord] = ()
        self.began = time.monotonic()
        self.told_study = False
        """Whether a trial was answered without a run since `learn`."""

    def learn(self, records: Sequence[TrialRecord]) -> None:
        """Note how the trials stand."""
        self.records, self.told_study = records, False
        self.wall.learn(records)
        self.repeats.learn(records)

    def more(self) -> bool:
        """Whether another point is wanted. Points that are not run do not count, up to as many as the budget."""
        ran = sum(1 for record in self.records if record.runs or record.state == "running")
        if ran >= self.spec.trials or len(self.records) >= 2 * self.spec.trials or self.study.exhausted():
            return False
        return self.spec.minutes is None or time.monotonic() - self.began < 60 * self.spec.minutes

    def point(self) -> AskedTrial | None:
        """A point to run, RUNNING in the study; None if it was answered without a run."""
        for path, point in waiting_points(self.folder):
            try:
                self.study.give(point)
            except ConfigError as error:
                print(f"scalebook: a manually added point is left out: {error}", flush=True)
            path.unlink()
        trial = self.study.ask()
        if beyond := self.wall.beyond(trial.point):
            self.study.infeasible(trial.number, FailureClass.OUT_OF_MEMORY.value, beyond)
        elif (same := self.repeats.of(trial.point)) is not None:
            self._repeat(trial.number, same)
        else:
            return trial
        self.told_study = True
        return None

    def hopeless(self) -> str | None:
        """Why the search cannot succeed; None while it can."""
        failed = [record for record in self.records if record.state == "failed" and record.failure != BY_HAND]
        if len(failed) >= self.spec.failures:
            return (
                f"{len(failed)} trials failed (the limit is failures: {self.spec.failures}); the last cause: "
                f"{failed[-1].cause}"
            )
        impossible = [record for record in self.records if record.state == "infeasible" and record.runs]
        if len(impossible) >= 2 * self.spec.failures and not any(record.state == "finished" for record in self.records):
            return f"none of {len(impossible)} points can train; the last cause: {impossible[-1].cause}"
        return None

    def why_over(self) -> str:
        """Why the search has no more points."""
        ran = sum(1 for record in self.records if record.runs)
        if self.study.exhausted():
            return f"{ran} trials (all points)"
        return f"{ran} trials" if ran >= self.spec.trials else f"{ran} trials within the time budget"

    def _repeat(self, number: int, same: TrialRecord) -> None:
        """The same point and seeds give the same answer, so it is told without running."""
        cause = f"not run: trial {same.number} has already tried this point"
        if same.state == "finished":
            self.study.finish(number, same.values)
        elif same.state == "pruned":
            self.study.prune(number, cause)
        else:
            self.study.infeasible(number, same.failure or "", cause)


@dataclass(frozen=True)
class OutOfMemoryTrial:
    """A trial that ran out of memory."""

    trial: int
    batch: int
    """Samples per worker."""


def _weightless(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in WEIGHTLESS
