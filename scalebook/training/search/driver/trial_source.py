"""Which point is next: given ones, then the sampler's, but none that need not be run."""

import time
from collections.abc import Sequence

from scalebook.training.config.description import Description
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.errors import ConfigError
from scalebook.training.failures import FailureClass
from scalebook.training.search.driver.bounds import MemoryWall, Repeats
from scalebook.training.search.driver.outcome import BY_HAND
from scalebook.training.search.folder import SearchFolder
from scalebook.training.search.launch import waiting_points
from scalebook.training.search.study.study import AskedTrial, Study
from scalebook.training.search.study.trials import TrialRecord


class TrialSource:
    """Asks the study, and tells it at once of points whose end is known.

    `began` is when the driver began, by time.monotonic(), s.
    """

    def __init__(self, folder: SearchFolder, study: Study, spec: SearchSpec, description: Description) -> None:
        self.folder, self.study, self.spec = folder, study, spec
        self.wall, self.repeats = MemoryWall(spec, description), Repeats(spec)
        self.records: Sequence[TrialRecord] = ()
        self.began = time.monotonic()
        self.told_study = False
        """Whether the study was told of a trial since `learn`."""

    def learn(self, records: Sequence[TrialRecord]) -> None:
        """Take in how the trials stand."""
        self.records, self.told_study = records, False
        self.wall.learn(records)
        self.repeats.learn(records)

    def more(self) -> bool:
        """Whether a further point is wanted. Points that were not run do not count, but as often as the budget."""
        ran = sum(1 for record in self.records if record.runs or record.state == "running")
        if ran >= self.spec.trials or len(self.records) >= 2 * self.spec.trials or self.study.exhausted():
            return False
        return self.spec.minutes is None or time.monotonic() - self.began < 60 * self.spec.minutes

    def point(self) -> AskedTrial | None:
        """A point to be run, RUNNING in the study; None where the study was told of it already."""
        for path, given in waiting_points(self.folder):
            try:
                self.study.give(given)
            except ConfigError as error:
                print(f"scalebook: a point given by hand is left out: {error}", flush=True)
            path.unlink()
        asked = self.study.ask()
        if beyond := self.wall.beyond(asked.point):
            self.study.infeasible(asked.number, FailureClass.OUT_OF_MEMORY.value, beyond)
        elif (same := self.repeats.of(asked.point)) is not None:
            self._repeat(asked.number, same)
        else:
            return asked
        self.told_study = True
        return None

    def hopeless(self) -> str | None:
        """Why going on is of no use."""
        failed = [record for record in self.records if record.state == "failed" and record.failure != BY_HAND]
        if len(failed) >= self.spec.failures:
            return f"{len(failed)} trials failed (failures: {self.spec.failures}); the last: {failed[-1].cause}"
        impossible = [record for record in self.records if record.state == "infeasible" and record.runs]
        if len(impossible) >= 2 * self.spec.failures and not any(record.state == "finished" for record in self.records):
            return f"none of {len(impossible)} points can train; the last: {impossible[-1].cause}"
        return None

    def why_over(self) -> str:
        """Why there are no more points."""
        ran = sum(1 for record in self.records if record.runs)
        if self.study.exhausted():
            return f"{ran} trials: all points"
        return f"{ran} trials" if ran >= self.spec.trials else f"{ran} trials, within its budget"

    def _repeat(self, number: int, same: TrialRecord) -> None:
        """The same point and seeds give the same answer, so it is told without running."""
        cause = f"not run: trial {same.number} has tried this point"
        if same.state == "finished":
            self.study.finish(number, same.values)
        elif same.state == "pruned":
            self.study.prune(number, cause)
        else:
            self.study.infeasible(number, same.failure or "", cause)
