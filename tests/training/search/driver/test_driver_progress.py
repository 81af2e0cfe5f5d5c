"""How long a search still takes: measured against searches that are played on a clock of their own."""

import heapq
import random
from pathlib import Path

import pytest

from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.search.driver.driver_progress import Pace, time_left
from scalebook.training.search.driver.trial_jobs import Trial


def played(trials: int, slots: int, seed: int, spread: float) -> list[tuple[float, float]]:
    """When each trial began and ended: every fourth is pruned after a third, each begins a little late."""
    rng = random.Random(seed)
    free = [0.0] * slots
    found = []
    for number in range(trials):
        begin = heapq.heappop(free) + rng.uniform(0.1, 0.5)
        end = begin + 10 * rng.lognormvariate(0, spread) * (1 / 3 if number % 4 == 3 else 1)
        heapq.heappush(free, end)
        found.append((begin, end))
    return found


@pytest.mark.parametrize(("slots", "spread"), [(1, 0.0), (1, 0.3), (2, 0.0), (2, 0.3), (4, 0.3), (16, 0.0)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_right_within_thirty_percent_from_a_third_of_the_way(slots: int, spread: float, seed: int) -> None:
    spans = played(120, slots, seed, spread)
    end = max(ended for _, ended in spans)
    for share in (1 / 3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        now = share * end
        done = [span for span in spans if span[1] <= now]
        going = [begin for begin, ended in spans if begin <= now < ended]
        if len(done) + len(going) == len(spans) and spread:
            break  # all that is left is when the last one ends, which is chance
        told = time_left(now, done, going, len(spans) - len(done), slots)
        assert told == pytest.approx(end - now, rel=0.3), (share, told, end - now)


def test_little_is_not_enough() -> None:
    assert time_left(10.0, [(0.0, 1.0)], [5.0], 4, 2) is None
    assert time_left(10.0, [], [], 0, 2) == 0.0
    assert time_left(4.0, [(0.0, 2.0), (0.0, 2.0)], [2.0, 2.0], 4, 2) == pytest.approx(2.1), "two overdue, two more"


def test_only_the_time_of_processes_counts(tmp_path: Path) -> None:
    """Not that in which a trial waited for a core."""
    job = JobFolder(tmp_path)
    job.write(JobRequest("x", 1.0, "test", "sqlite://", 1, 1))
    trial, pace = Trial(3, {}, {1: job}), Pace()
    pace.note_starts({3: trial})
    assert (pace.starts, trial.runs_now()) == ({}, False)
    job.write(JobStart(LocalHandle.of_this_process(), 100.0))
    pace.note_starts({3: trial})
    assert (pace.starts, trial.runs_now()) == ({3: 100.0}, True)
    job.write(Result("finished", 112.0))
    pace.note_end(trial)
    assert (pace.starts, pace.spans, trial.runs_now()) == ({}, {3: (100.0, 112.0)}, False)
