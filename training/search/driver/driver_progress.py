"""Reports how a search stands and how long it will take: in its progress file, and in MLflow's parent run."""

import heapq
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.experiments.search import SearchSpec, trials_wanted
from scalebook.training.search.driver.search_record import SearchRecord
from scalebook.training.search.driver.trial_jobs import Trial
from scalebook.training.search.search_folder import SearchFolder, SearchProgress, SearchResult
from scalebook.training.search.study.trials import TrialRecord, best

EVERY_S: Final = 1.0
FEWEST: Final = 2
"""Trials that must have ended before a remaining time is given."""
LEAST_LEFT: Final = 0.05
"""Share of a mean trial that one which already takes longer is taken to need still."""


class SearchReporter:
    """Writes `progress.json` every second while `progress` is called often."""

    def __init__(self, folder: SearchFolder, record: SearchRecord) -> None:
        self.folder, self.record = folder, record
        self.overheads: list[float] = []
        """Seconds of overhead of the trials that ended under this driver."""
        self.pace = Pace()
        self._told = 0.0
        self._recorded = -1
        self._counted: tuple[SearchSpec, int] | None = None

    def due(self) -> bool:
        return time.monotonic() - self._told >= EVERY_S

    def progress(
        self, records: Sequence[TrialRecord], running: Mapping[int, Trial], spec: SearchSpec, note: str, slots: int
    ) -> None:
        """Write it now; the parent run's curve too, where a trial has ended since. `slots`: runs side by side."""
        self.pace.note_starts(running)
        computing = [number for number, trial in running.items() if trial.runs_now()]
        self._told = time.monotonic()
        ended = [record for record in records if record.state not in ("running", "waiting")]
        best_record = best(records, spec)
        progress = SearchProgress(
            time=time.time(),
            done=len(ended),
            running=len(computing),
            trials=max(self._wanted(spec), len(ended)),
            best=best_record.values[0] if best_record else None,
            best_trial=best_record.number if best_record else None,
            left_s=self.pace.seconds_left(max(0, self._wanted(spec) - len(ended)), slots),
            overhead_s=statistics.median(self.overheads) if self.overheads else None,
            note=note,
            now=computing,
        )
        self.folder.write(progress)
        if progress.done != self._recorded:
            self._recorded = progress.done
            self.record.so_far(progress.done, progress.best)

    def write_result(self, result: SearchResult, records: Sequence[TrialRecord], spec: SearchSpec) -> None:
        """Write the result to MLflow, then to the folder, so that a result in the folder is always in MLflow too."""
        self.record.record_end(result.status, result.cause, result.advice, best(records, spec))
        self.folder.write(result)
        print(f"scalebook: {result.status}: {result.cause}", flush=True)

    def _wanted(self, spec: SearchSpec) -> int:
        """Counted once for each spec: a grid may have thousands of points."""
        if self._counted is None or self._counted[0] is not spec:
            self._counted = (spec, trials_wanted(spec))
        return self._counted[1]


class Pace:
    """Keeps when trials began and ended under one driver. Times are unix time, s; those of their processes."""

    def __init__(self) -> None:
        self.starts: dict[int, float] = {}
        self.spans: dict[int, tuple[float, float]] = {}

    def note_starts(self, running: Mapping[int, Trial]) -> None:
        """Note which trials have begun: a trial begins with its first process."""
        for number, trial in running.items():
            if number not in self.starts and (started := _started(trial)):
                self.starts[number] = started

    def note_end(self, trial: Trial) -> None:
        """Note a trial's end; one that never had a process is ignored."""
        begin = self.starts.pop(trial.number, None) or _started(trial)
        ends = [result.ended for job in trial.runs.values() if (result := job.result()) is not None]
        if begin and ends:
            self.spans[trial.number] = (begin, max(ends))

    def seconds_left(self, missing: int, slots: int) -> float | None:
        """Seconds until `missing` more trials have ended, running ones included; None while too little is known."""
        return time_left(time.time(), list(self.spans.values()), list(self.starts.values()), missing, slots)


def time_left(
    now: float, spans: Sequence[tuple[float, float]], running: Sequence[float], missing: int, slots: int
) -> float | None:
    """Seconds until the missing trials have ended, if each takes as long as those so far, with `slots` side by side.

    The time that a slot is empty between two trials counts as part of them.
    """
    if len(spans) < FEWEST or not missing:
        return 0.0 if not missing else None
    busy = sum(end - begin for begin, end in spans) + sum(now - begin for begin in running)
    elapsed = now - min(begin for begin in [*running, *(begin for begin, _ in spans)])
    gap = max(0.0, slots * elapsed - busy) / (len(spans) + len(running))
    each = sum(end - begin for begin, end in spans) / len(spans) + gap
    free = [max(each - (now - begin), LEAST_LEFT * each) for begin in running] + [0.0] * max(0, slots - len(running))
    heapq.heapify(free)
    for _ in range(max(0, missing - len(running))):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def _started(trial: Trial) -> float | None:
    return min((process.started for job in trial.runs.values() if (process := job.started())), default=None)
