import time
from typing import Literal

import pytest

from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.launcher import Event, Launcher, LauncherLost, ProcessEnded
from scalebook.training.jobs.leases import Lease, place_of
from scalebook.training.jobs.schedule import Start
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.supervisor_loop import Starter
from tests.training.benches import Bench, wait_for


class Scripted(Launcher):
    """Tells what it is told to tell."""

    def __init__(self) -> None:
        self.news: list[Event] = []
        self.asked: list[bool] = []
        self.closed = 0
        self._state: Literal["none", "loading", "ready"] = "none"

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        return self._state

    def prepare(self, fresh: bool) -> bool:
        self.asked.append(fresh)
        self._state = "ready"
        return True

    def start(self, job: JobFolder, lease: Lease) -> bool:
        return True

    def events(self, wait_s: float) -> list[Event]:
        news, self.news = self.news, []
        if any(isinstance(event, LauncherLost) for event in news):
            self._state = "none"
        return news

    def close(self) -> None:
        self.closed += 1
        self._state = "none"


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


def test_jobs_on_their_way_hold_their_devices_and_what_starts_them_is_not_replaced_meanwhile(
    scripted: Scripted, bench: Bench
) -> None:
    starter, job = Starter(scripted, JobLimits()), bench.job()
    assert starter.prepare(fresh=True)
    starter.order(job, Start(job.request(), [1], ["GPU-a"], "there"))
    assert starter.leases() == [
        Lease(job.id, job.request().title, [1], ["GPU-a"], machine="there", place=place_of(job.request()))
    ]
    assert starter.prepare(fresh=True)
    assert scripted.asked == [True, False]
    scripted.news = [ProcessEnded(job.id, 3)]
    assert starter.listen(0.0) == [ProcessEnded(job.id, 3)]


def test_a_job_is_of_who_ordered_it_though_what_started_it_is_lost_before_it_is_seen(
    scripted: Scripted, bench: Bench
) -> None:
    """Else nobody waits for its exit code, and it is said that nobody watched it."""
    starter, jobs = Starter(scripted, JobLimits()), [bench.job() for _ in range(3)]
    starter.prepare(fresh=True)
    for job in jobs[:2]:
        starter.order(job, Start(job.request(), [0], []))
    assert starter.note_started(jobs[0].id)
    scripted.news = [LauncherLost(True, "it died")]
    starter.listen(0.0)
    assert [starter.note_started(job.id) for job in jobs] == [False, True, False]


def test_a_job_that_never_appears_is_given_up_after_three_losses(scripted: Scripted, bench: Bench) -> None:
    starter, job = Starter(scripted, JobLimits()), bench.job()
    for _ in range(3):
        assert starter.hopeless([job.id]) == {}
        assert starter.prepare(fresh=True)  # one that was ready is had again at once
        starter.order(job, Start(job.request(), [0], []))
        scripted.news = [LauncherLost(True, "it died")]
        assert starter.listen(0.0) == []
        assert starter.leases() == []
    assert starter.hopeless([job.id]) == {job.id: "none of the run's processes started"}


def test_a_job_that_takes_too_long_to_appear_counts_as_a_loss(scripted: Scripted, bench: Bench) -> None:
    starter, job = Starter(scripted, JobLimits(start_s=0.0)), bench.job()
    for times in range(1, 4):
        starter.prepare(fresh=True)
        starter.order(job, Start(job.request(), [0], []))
        time.sleep(0.001)
        found = starter.hopeless([job.id])
        assert (scripted.closed, starter.leases()) == (times, [])
    assert found == {job.id: "none of the run's processes started"}


def test_what_cannot_get_ready_is_tried_again_after_a_pause_and_the_first_job_takes_the_blame(
    scripted: Scripted,
) -> None:
    starter = Starter(scripted, JobLimits(retry_s=60.0))
    for _ in range(3):
        assert starter.hopeless(["a", "b"]) == {}
        scripted.prepare(fresh=True)
        scripted.news = [LauncherLost(False, "it ended: no module")]
        starter.listen(0.0)
        assert starter.problem == "it ended: no module"
        assert not starter.prepare(fresh=True)  # not yet
    assert starter.hopeless(["a", "b"]) == {"a": "it ended: no module"}
    scripted.prepare(fresh=True)
    starter.listen(0.0)
    assert starter.problem == ""


def test_a_job_is_not_kept_waiting_for_a_warm_process_that_cannot_be(bench: Bench) -> None:
    job = bench.job()
    bench.supervise(runner="tests.training.jobs.nowhere:run", retry_s=0.1)
    result = wait_for(job.result, "a result")
    assert (result.status, result.failure) == ("failed", "unknown")
    assert result.cause.startswith("the fork server, which starts runs, ended: ModuleNotFoundError")
