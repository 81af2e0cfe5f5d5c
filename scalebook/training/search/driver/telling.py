"""How a search stands, for whoever watches: its progress file, and MLflow's parent run."""

import statistics
import time
from collections.abc import Sequence
from typing import Final

from scalebook.training.config.search.cost import trials_wanted
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.search.driver.record import SearchRecord
from scalebook.training.search.folder import SearchFolder, SearchProgress, SearchResult
from scalebook.training.search.study.trials import TrialRecord, best

EVERY_S: Final = 1.0


class Telling:
    """Writes `progress.json` every second while `progress` is called often."""

    def __init__(self, folder: SearchFolder, record: SearchRecord) -> None:
        self.folder, self.record = folder, record
        self.overheads: list[float] = []
        """Of the trials that ended under this driver, s."""
        self._ends: dict[int, float] | None = None
        """When the end of each trial was first seen here, time.monotonic(); of those that had ended before, 0."""
        self._told = 0.0
        self._recorded = -1
        self._counted: tuple[SearchSpec, int] | None = None

    def due(self) -> bool:
        return time.monotonic() - self._told >= EVERY_S

    def progress(self, records: Sequence[TrialRecord], running: int, spec: SearchSpec, note: str) -> None:
        """Write it now; the parent run's curve too, where a trial has ended since."""
        self._told = time.monotonic()
        ended = [one for one in records if one.state not in ("running", "waiting")]
        found = best(records, spec)
        progress = SearchProgress(
            time=time.time(),
            done=len(ended),
            running=running,
            trials=max(self._wanted(spec), len(ended)),
            best=found.values[0] if found else None,
            best_trial=found.number if found else None,
            left_s=self._left(ended, self._wanted(spec)),
            overhead_s=statistics.median(self.overheads) if self.overheads else None,
            note=note,
        )
        self.folder.write(progress)
        if progress.done != self._recorded:
            self._recorded = progress.done
            self.record.so_far(progress.done, progress.best)

    def end(self, result: SearchResult, records: Sequence[TrialRecord], spec: SearchSpec) -> None:
        """Write the result to MLflow, then to the folder: whoever finds it in the folder finds it in MLflow too."""
        self.record.end(result.status, result.cause, result.advice, best(records, spec))
        self.folder.write(result)
        print(f"scalebook: {result.status}: {result.cause}", flush=True)

    def _wanted(self, spec: SearchSpec) -> int:
        """Counted once for each spec: a grid may have thousands of points."""
        if self._counted is None or self._counted[0] is not spec:
            self._counted = (spec, trials_wanted(spec))
        return self._counted[1]

    def _left(self, ended: Sequence[TrialRecord], wanted: int) -> float | None:
        """From the pace of the trials that were run under this driver; None before two of them have ended."""
        ran = [one.number for one in ended if one.runs]
        if self._ends is None:
            self._ends = dict.fromkeys(ran, 0.0)
        for number in ran:
            self._ends.setdefault(number, time.monotonic())
        ends = sorted(filter(None, self._ends.values()))
        if len(ends) < 2 or ends[-1] == ends[0]:
            return None
        return max(0, wanted - len(ended)) * (ends[-1] - ends[0]) / (len(ends) - 1)
