"""What every executor keeps to: subclass it with a fixture `executor`."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from scalebook.training.base.processes import Children
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.executor import CLAIMED_ELSEWHERE, Executor, LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.jobs.launcher import Event, Launcher, ProcessEnded
from scalebook.training.jobs.leases import Lease
from scalebook.training.supervisor.supervisor_loop import LAUNCHERS
from tests.training.benches import STAND_IN, Bench, until_state, wait_for


class Launching:
    """A launcher under test, and what it told."""

    def __init__(self, executor: Executor[Any], workspace: Workspace) -> None:
        self.executor, self.children = executor, Children()
        self.launcher: Launcher = LAUNCHERS[executor.name](workspace, self.children, STAND_IN, ())
        self.events: list[Event] = []
        self.started: list[JobFolder] = []

    def ready(self) -> bool:
        self.listen()
        return self.launcher.prepare(fresh=True)

    def listen(self) -> list[Event]:
        self.children.reap()
        self.events += self.launcher.events(0.02)
        return self.events

    def start(self, job: JobFolder, cores: int = 1) -> JobStart:
        """Have it run on so many cores, the last ones; returns its record."""
        wait_for(self.ready, "the launcher")
        machine = self.executor.machines()[-1]
        assert self.launcher.start(job, Lease(job.id, "", machine.cores[-cores:], machine=machine.name))
        self.started.append(job)
        wait_for(lambda: self.listen() is not None and job.started(), "its process")
        found = job.started()
        assert found is not None
        return found

    def until_told(self, job: JobFolder) -> int:
        """The exit code of a job."""

        def told() -> list[ProcessEnded]:
            return [one for one in self.listen() if isinstance(one, ProcessEnded) and one.job == job.id]

        wait_for(told, "news of its end")
        (one,) = told()
        return one.code

    def close(self) -> None:
        self.launcher.close()
        for job in self.started:
            if (started := job.started()) is not None:
                self.executor.stop(started.handle, "kill")
                wait_for(partial(self._gone, started), "all of it to be gone")

    def _gone(self, started: JobStart) -> bool:
        return not started.alive() and self.executor.clear(started.handle)


class ExecutorContract:
    """Jobs are proxies (tests.training.jobs.standin)."""

    @pytest.fixture
    def executor(self) -> Executor[Any]:
        raise NotImplementedError

    def folder_there(self, bench: Bench) -> str:
        """A pattern of the workspace's folder, as jobs see it."""
        return re.escape(str(bench.workspace.root))

    @pytest.fixture
    def launching(self, executor: Executor[Any], bench: Bench) -> Iterator[Launching]:
        found = Launching(executor, bench.workspace)
        yield found
        found.close()

    def test_every_machine_has_a_name_and_cores_of_its_own(self, executor: Executor[Any]) -> None:
        machines = executor.machines()
        assert len({machine.name for machine in machines}) == len(machines) > 0
        for machine in machines:
            assert len(set(machine.cores)) == len(machine.cores) > 0

    def test_a_job_runs_on_its_lease_and_all_it_writes_comes_to_its_folder(
        self, executor: Executor[Any], launching: Launching, bench: Bench
    ) -> None:
        job = bench.job(seconds=0.3, devices=True)
        started = launching.start(job)
        machine = executor.machines()[-1]
        assert (started.cores, started.gpus, started.machine) == (machine.cores[-1:], [], machine.name)
        assert started.handle.executor == executor.name
        assert (started.alive(), job.state(), executor.failure_reason(started.handle)) == (True, "running", "")
        assert launching.until_told(job) == 0
        assert not executor.alive(started.handle)
        wait_for(lambda: executor.clear(started.handle), "its files")
        progress, result = job.progress(), job.result()
        assert progress is not None
        assert result is not None
        assert (progress.phase, result.status, job.state()) == ("training", "finished", "finished")
        log = job.log.read_text(encoding="utf-8")
        assert f"affinity {started.cores} gpus \n" in log
        assert re.search(rf"^cwd {self.folder_there(bench)} input '' session True$", log, re.MULTILINE)

    def test_each_end_is_told_once_with_its_code(self, launching: Launching, bench: Bench) -> None:
        ends = {"finish": 0, "exit": 7, "crash": 1}
        jobs = {end: bench.job(seconds=0.2, end=end) for end in ends}
        for job in jobs.values():
            launching.start(job)
        assert {end: launching.until_told(job) for end, job in jobs.items()} == ends
        for _ in range(3):
            launching.listen()
        assert sorted(one.job for one in launching.events if isinstance(one, ProcessEnded)) == sorted(
            job.id for job in jobs.values()
        )

    def test_a_job_is_asked_by_the_file_in_its_folder(self, launching: Launching, bench: Bench) -> None:
        job = bench.job(seconds=60)
        launching.start(job)
        job.ask_to_stop("enough")
        assert launching.until_told(job) == 0
        assert until_state(job, "stopped", "failed") == "stopped"

    def test_terminated_is_the_main_process_and_killed_is_all_of_it(
        self, executor: Executor[Any], launching: Launching, bench: Bench
    ) -> None:
        deaf, stubborn = bench.job(seconds=60, deaf=True), bench.job(seconds=60, stubborn=True, child=True)
        records = [launching.start(deaf), launching.start(stubborn)]
        child = wait_for(lambda: child_of(stubborn), "its child")
        for started in records:
            executor.stop(started.handle, "terminate")
        assert launching.until_told(deaf) == -15
        assert (executor.alive(records[0].handle), executor.alive(records[1].handle)) == (False, True)
        assert child.is_running()
        executor.stop(records[1].handle, "kill")
        assert launching.until_told(stubborn) == -9
        wait_for(lambda: executor.clear(records[1].handle), "all of it to be gone")
        assert is_gone(child)

    def test_what_a_job_leaves_behind_is_cleared_away(
        self, executor: Executor[Any], launching: Launching, bench: Bench
    ) -> None:
        job = bench.job(seconds=3.0, child=True)
        started = launching.start(job)
        child = wait_for(lambda: child_of(job), "its child")
        assert not is_gone(child)
        assert launching.until_told(job) == 0
        wait_for(lambda: executor.clear(started.handle), "all of it to be gone")
        assert is_gone(child)
        executor.stop(started.handle, "terminate")  # twice does no harm
        executor.stop(started.handle, "kill")
        assert executor.clear(started.handle)

    def test_a_job_that_somebody_has_claimed_is_left_alone(self, launching: Launching, bench: Bench) -> None:
        job = bench.job(seconds=0.2)
        mine = JobStart(LocalHandle.of_this_process(leads_session=False), 1.0, inline=True)
        assert job.claim(mine)
        wait_for(launching.ready, "the launcher")
        assert launching.launcher.start(job, Lease(job.id, "", sorted(os.sched_getaffinity(0))[:1]))
        assert launching.until_told(job) == CLAIMED_ELSEWHERE
        assert job.started() == mine

    def test_a_closed_launcher_leaves_its_jobs_and_can_start_again(self, launching: Launching, bench: Bench) -> None:
        job, later = bench.job(seconds=1.0), bench.job(seconds=0.1)
        started = launching.start(job)
        launching.launcher.close()
        states = [launching.launcher.state]
        assert started.alive()
        launching.start(later)
        assert [*states, launching.launcher.state] == ["none", "ready"]
        assert until_state(job, "finished", "failed") == "finished"
        assert launching.until_told(later) == 0

    def test_a_handle_of_another_process_is_nobody(
        self, executor: Executor[Any], launching: Launching, bench: Bench
    ) -> None:
        """It says the same to whoever reads it, and a process that has the pid by now is not meant."""
        job = bench.job(seconds=60)
        started = launching.start(job)
        assert JobFolder(Path(job.path)).started() == started
        process = started.handle.process
        other = replace(started.handle, process=replace(process, start=process.start - 1))
        assert not executor.alive(other)
        executor.stop(other, "terminate")
        executor.stop(other, "kill")
        assert executor.clear(other)
        assert executor.alive(started.handle)
        assert str(process.pid) in executor.describe(started.handle)


def child_of(job: JobFolder) -> psutil.Process | None:
    """The process that a job with `child` has made."""
    found = re.search(r"^child (\d+)$", job.tail(), re.MULTILINE)
    return psutil.Process(int(found[1])) if found else None


def is_gone(process: psutil.Process) -> bool:
    """A zombie is, too: nobody of ours may be there to wait for it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
