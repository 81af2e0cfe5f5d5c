"""A wall clock that is set, back or forth, while jobs live: nobody is taken for dead, stuck or late."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scalebook.training.base.files import records
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import waiting_jobs
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Progress
from scalebook.training.jobs.supervisor_handle import SupervisorLock
from scalebook.training.supervisor.job_watch import JobLimits, JobWatch
from scalebook.training.supervisor.supervisor_loop import SupervisorLoop
from tests.training.jobs.machines import Cores

STEPS = (-3600.0, -30.0, 30.0, 3600.0)


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock: of Python, and what psutil reckons by it (the kernel's `btime` moves with the clock)."""
    real, boot = time.time, psutil.boot_time()

    def by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + seconds)
        monkeypatch.setattr(psutil._pslinux, "BOOT_TIME", boot + seconds, raising=False)

    return by


def waits(workspace: Workspace, name: str) -> JobFolder:
    job = JobFolder(workspace.jobs / name)
    job.path.mkdir()
    records.put(job.config, b"{}")
    job.write(JobRequest(name, time.time(), "e", workspace.tracking_uri(), 1, 1, name=name))
    sign(job.path, name, JOB)
    return job


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ProcessId]:
    """A process that only waits, and writes to the file `log` in the test's folder."""
    with (tmp_path / "log").open("w"):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
    found = ProcessId.of(pid)
    yield found
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("seconds", STEPS)
def test_a_live_job_stays_alive_and_keeps_its_cores(
    tmp_path: Path, child: ProcessId, step: Callable[[float], None], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path).create()
    monkeypatch.setattr(waiting_jobs, "configured_executor", lambda workspace: Cores(0))
    running, next_one = waits(workspace, "a" * 32), waits(workspace, "b" * 32)
    os.link(tmp_path / "log", running.log)
    running.write(JobStart(LocalHandle(child), time.time(), [0]))
    running.write(Progress(time.time(), "training"))
    turns = SupervisorLoop(
        SupervisorLock(workspace), JobLimits(poll_s=0.0, grace_s=5.0, stall_s=20.0), Cores(0), "none", ()
    )
    monkeypatch.setattr(turns.starter, "prepare", lambda fresh: False)
    turns.run_once()
    step(seconds)
    assert psutil.Process(child.pid).create_time() != pytest.approx(started_at(child.pid), abs=20)
    for _ in range(5):
        turns.watches[running.id]._checked = 0.0  # look for signs of life now
        turns.run_once()
    assert (running.state(), next_one.state()) == ("running", "waiting")
    assert turns.watches[running.id].signals == []
    assert (
        waiting_jobs.waiting_reasons(workspace)[next_one.id]
        == "waits for 1 core; 0 of 1 free, run " + "a" * 32 + " has it"
    )
    assert [one.pid for one in child.session()] == [child.pid]
    assert child in ProcessId.of().descendants()


def started_at(pid: int) -> float:
    """By a clock that nobody has set, unix s."""
    ticks = ProcessId.of(pid).start / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks


@pytest.mark.parametrize("seconds", STEPS)
def test_grace_is_from_when_the_stop_was_seen(tmp_path: Path, child: ProcessId, seconds: float) -> None:
    job = waits(Workspace(tmp_path).create(), "a" * 32)
    started = JobStart(LocalHandle(child), time.time(), [0])
    job.write(started)
    watch = JobWatch(job, started, JobLimits(grace_s=5.0))
    job.ask_to_stop("why")
    os.utime(job.stop_file, (time.time() + seconds,) * 2)  # as files look after a step
    for now in (100.0, 104.9):
        watch.poll(now)
        assert watch.signals == []
    watch.poll(105.1)
    assert watch.signals == ["SIGTERM"]


def test_stuck_is_who_changes_nothing_for_so_long(tmp_path: Path, child: ProcessId) -> None:
    job = waits(Workspace(tmp_path).create(), "a" * 32)
    started = JobStart(LocalHandle(child), time.time(), [0])
    job.write(started)
    watch = JobWatch(job, started, JobLimits(stall_s=10.0))
    watch._moved = watch._checked = 0.0
    for now in range(2, 100, 2):
        job.write(Progress(0.0, "training", now))
        os.utime(job.path / "progress.json", (now, now))  # 1970: by the file's time it has long been dead
        watch.poll(float(now))
        assert watch.timed_out == ""
    for later in (103.0, 106.0, 108.5):
        watch.poll(later)
    assert watch.timed_out == "no sign of life for 10 s; the run was training, after 98 updates"


def test_another_start_of_the_machine_has_other_processes() -> None:
    me = ProcessId.of()
    assert me.alive()
    assert not replace(me, boot="0b7d5c1e-0000-0000-0000-000000000000").alive()
    assert not replace(me, start=me.start + 1).alive()
    assert replace(me, boot="another").session() == []


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 10**30])
def test_a_pid_that_cannot_be_is_nobody(pid: int) -> None:
    assert not ProcessId(pid, 1, "x").alive()
