"""How long a search still takes, from how long its trials took and how many run side by side."""

import heapq
import time
from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.search.driver.trial_jobs import Trial

FEWEST: Final = 2
"""Trials that must have ended before anything is said."""
LEAST_LEFT: Final = 0.05
"""Of a mean trial: what one that has taken longer than that is thought to need still."""


class Pace:
    """Keeps when trials began and ended under one driver. Times are unix time, s; those of their processes."""

    def __init__(self) -> None:
        self.starts: dict[int, float] = {}
        self.spans: dict[int, tuple[float, float]] = {}

    def look(self, running: Mapping[int, Trial]) -> None:
        """Note which trials have begun to run; the first process of a trial that waited before is its begin."""
        for number, trial in running.items():
            if number not in self.starts and (started := _started(trial)):
                self.starts[number] = started

    def note_end(self, trial: Trial) -> None:
        """Before it is forgotten. One that never had a process says nothing."""
        begin = self.starts.pop(trial.number, None) or _started(trial)
        ends = [result.ended for job in trial.runs.values() if (result := job.result()) is not None]
        if begin and ends:
            self.spans[trial.number] = (begin, max(ends))

    def seconds_left(self, missing: int, slots: int) -> float | None:
        """Seconds until `missing` more trials have ended, those that run among them; None where too little is known."""
        return time_left(time.time(), list(self.spans.values()), list(self.starts.values()), missing, slots)


def time_left(
    now: float, spans: Sequence[tuple[float, float]], running: Sequence[float], missing: int, slots: int
) -> float | None:
    """The trials that are left, each as long as those so far, dealt out to `slots` that run side by side.

    What a slot stood empty between two trials counts as part of each.
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
