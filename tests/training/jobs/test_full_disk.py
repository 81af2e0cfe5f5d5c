"""A disk without room, as the processes meet it: writes that raise ENOSPC, and `/dev/full` under their output."""

import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.failures import FailureClass, classify
from scalebook.training.base.files import machine_errors, records
from scalebook.training.base.files.machine_errors import EXIT_NO_ROOM
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, SEARCH, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import runner
from scalebook.training.jobs import waiting_jobs
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.jobs.supervisor_handle import SupervisorLock, status
from scalebook.training.notebook import edit, store
from scalebook.training.search.driver.trial_outcome import outcome_of
from scalebook.training.search.search_folder import DriverProcess, SearchFolder, SearchRequest
from scalebook.training.supervisor import lost_jobs, search_drivers, supervisor_loop
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.supervisor_loop import SupervisorLoop
from tests.training.jobs.machines import Cores

FULL = "the disk of /data is full (0.0 MB left)"


class Disk:
    """Takes `puts` more records, then none until `room`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.puts: float = float("inf")
        self._put = records.put
        monkeypatch.setattr(records, "put", self.put)
        for module in (supervisor_loop, lost_jobs, waiting_jobs):
            monkeypatch.setattr(module, "disk_problem", lambda folder: FULL if self.puts <= 0 else "")

    def put(self, path: Path, content: bytes, *, durable: bool = False) -> None:
        self.puts -= 1
        if self.puts < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._put(path, content, durable=durable)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path).create()


def job(workspace: Workspace, name: str = "a" * 32, process: ProcessId | None = None) -> JobFolder:
    made = JobFolder(workspace.jobs / name)
    made.path.mkdir()
    records.put(made.config, b"{}")
    made.write(JobRequest(name, 1.0, "e", workspace.tracking_uri(), 1, 1, name="run"))
    sign(made.path, name, JOB)
    if process is not None:
        made.write(JobStart(LocalHandle(process), 1.0, [0]))
    return made


@pytest.fixture
def supervising(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SupervisorLoop]:
    def make() -> SupervisorLoop:
        limits = JobLimits(poll_s=0.0, retry_s=0.1)
        made = SupervisorLoop(SupervisorLock(workspace), limits, Cores(0), "none", ())
        monkeypatch.setattr(made.starter, "prepare", lambda fresh: True)
        monkeypatch.setattr(made.recorder, "poll", lambda: None)
        return made

    return make


@pytest.mark.parametrize("puts", range(4))
def test_the_end_of_a_job_is_written_when_there_is_room_and_names_the_disk(
    workspace: Workspace, supervising: Callable[[], SupervisorLoop], disk: Disk, puts: int
) -> None:
    dead = job(workspace, process=replace(ProcessId.of(), start=1))
    disk.puts = puts
    mine = supervising()
    for _ in range(5):
        mine.run_once()
    if puts < 2:  # the note and the result
        assert dead.result() is None
        assert dead.id in mine.open
    disk.puts = float("inf")
    mine.run_once()
    result = dead.result()
    assert result is not None
    assert result.failure == ("disk full" if puts == 0 else result.failure)
    assert mine.open == {}
    assert dead.unrecorded.exists()
    found = records.load(workspace.hidden / "supervisor.json", type(mine._said))
    assert found == mine._said
    assert [path for path in workspace.hidden.rglob(".*") if path.is_file()] == []


def test_what_a_run_could_not_tell_mlflow_itself_is_told_for_it(
    workspace: Workspace, supervising: Callable[[], SupervisorLoop]
) -> None:
    ended, mine = job(workspace, process=replace(ProcessId.of(), start=1)), supervising()
    mine._discover()
    mine._codes[ended.id] = 1
    ended.write(Result("failed", 1.0, FailureClass.DISK_FULL.value, "OSError: no room"))
    ended.unrecorded.touch()
    mine.run_once()
    mine.run_once()
    assert mine.open == {}
    assert mine.recorder.pending == {ended.unrecorded}


def test_nothing_is_started_without_room(
    workspace: Workspace, supervising: Callable[[], SupervisorLoop], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, mine = job(workspace), supervising()
    ordered: list[str] = []
    monkeypatch.setattr(mine.starter, "order", lambda job, start: ordered.append(job.id))
    disk.puts = 0
    mine._looked_around -= 10
    mine.run_once()
    mine.run_once()
    assert ordered == []
    with SupervisorHeld(workspace):
        assert waiting_jobs.waiting_reasons(workspace) == {waits.id: f"waits for disk space: {FULL}"}
    disk.puts = float("inf")
    mine.run_once()
    mine.run_once()
    assert ordered == [waits.id] * len(ordered)
    assert ordered


class SupervisorHeld:
    """The lock, held by this process, which has written no note."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.lock = workspace, SupervisorLock(workspace)

    def __enter__(self) -> None:
        assert self.lock.acquire()
        (self.workspace.hidden / "supervisor.json").unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_the_supervisor_is_known_by_its_lock_where_it_cannot_write_a_note(workspace: Workspace) -> None:
    assert status(workspace) is None
    with SupervisorHeld(workspace):
        found = status(workspace)
        assert found is not None
        assert found.process == ProcessId.of()
    assert status(workspace) is None


def test_a_fork_that_finds_no_room_leaves_its_job_waiting(
    workspace: Workspace, supervising: Callable[[], SupervisorLoop]
) -> None:
    waits, mine = job(workspace), supervising()
    mine._discover()
    mine.starter.ordered[waits.id] = object()  # type: ignore[assignment]  # only that it is there counts
    mine._hear(waits.id, EXIT_NO_ROOM, "")
    assert waits.state() == "waiting"
    assert waits.id in mine.open
    mine.starter.ordered[waits.id] = object()  # type: ignore[assignment]
    mine._hear(waits.id, 1, "")
    assert waits.state() == "failed"


def test_a_full_disk_is_the_cause_whatever_came_of_it() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    try:
        try:
            raise full
        except OSError:
            raise RuntimeError("worker 1 died") from None
    except RuntimeError as error:
        found = classify(error)
    assert found.failure_class is FailureClass.DISK_FULL
    assert found.cause == "OSError: [Errno 28] No space left on device"
    assert found.advice == "Free disk space, then run again."
    told = classify(RuntimeError("(sqlite3.OperationalError) database or disk is full"))
    assert told.failure_class is FailureClass.DISK_FULL


@pytest.mark.parametrize(("failures", "written"), [(3, True), (10**9, False)])
def test_a_run_tries_to_say_its_result_again(
    workspace: Workspace, failures: int, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, calls = job(workspace), itertools.count()
    monkeypatch.setattr(runner, "WRITE_S", 0.3)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    put = records.put

    def sometimes(*told: Any, **more: Any) -> None:
        if next(calls) < failures:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(*told, **more)

    monkeypatch.setattr(records, "put", sometimes)
    assert runner._write(ended, Result("finished", 1.0), recorded=False) == written
    assert (ended.result() is not None) == written
    assert ended.unrecorded.exists()


def test_output_onto_a_full_disk_ends_nobody() -> None:
    program = "from scalebook.training.base.files.lossy_output import forgive; forgive()\n"
    program += "for i in range(99): print('x' * 999, flush=True)"
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], check=False, stdout=full, stderr=full, timeout=60)
    assert done.returncode == 0


def test_a_trial_whose_run_met_a_full_disk_or_lost_its_record_is_run_again(workspace: Workspace) -> None:
    met = job(workspace)
    met.write(Result("failed", 1.0, FailureClass.DISK_FULL.value, "OSError: no room"))
    assert outcome_of(met) == "again"
    (met.path / "result.json").write_bytes(b"")
    assert outcome_of(met) == "again"


def test_drivers_are_neither_started_nor_given_up_without_room(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SearchFolder(workspace.studies / "s")
    search.path.mkdir()
    search.write(SearchRequest("s", 1.0, "s", "e", "u", "i", "journal:x"))
    search.write_body({})
    sign(search.path, search.id, SEARCH)
    search.write(DriverProcess(replace(ProcessId.of(), start=1), 1.0))
    drivers, started = search_drivers.SearchDrivers(workspace), list[str]()
    drivers._deaths["s"] = (search_drivers.ATTEMPTS - 1, 0)

    def spawn(*told: Any, **more: Any) -> int:
        started.append("s")
        return os.getpid()

    monkeypatch.setattr(os, "posix_spawn", spawn)
    drivers.poll(FULL)
    assert (started, drivers.open) == ([], {"s"})
    drivers._looked = 0.0
    drivers.poll()
    assert started == ["s"]
    assert search.result() is None


def test_a_disk_is_full_by_bytes_or_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_errors.disk_problem(tmp_path) == ""
    assert machine_errors.disk_problem(tmp_path / "gone") == ""
    real = os.statvfs(tmp_path)
    fields = {name: getattr(real, name) for name in dir(real) if name.startswith("f_")}
    for change, words in (
        ({"f_bfree": 0, "f_bavail": 0}, "is full (0.0 MB left)"),
        ({"f_favail": 0}, "cannot hold more files"),
    ):
        facts = type("Facts", (), {**fields, "f_files": 1, **change})
        monkeypatch.setattr(os, "statvfs", lambda folder, facts=facts: facts)
        assert words in machine_errors.disk_problem(tmp_path)


def test_a_write_without_a_file_name_is_a_refusal_too() -> None:
    error = machine_errors.refusal(OSError(errno.ENOSPC, "No space left on device"))
    assert str(error) == "the disk: is full (No space left on device). Free disk space, then try again."


def test_want_of_room_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note.md"
    path.write_text("before", encoding="utf-8")
    stored = store.read(path)

    def full(*told: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    changed = edit.put_experiment(stored.notebook, "one", {}, 1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(machine_errors.NoRoom) as error:
        store.save(stored, changed)
    assert error.value.problem.key == str(tmp_path)
    assert error.value.problem.message == "cannot be written to ([Errno 28] No space left on device)"
    assert {one.name for one in tmp_path.iterdir()} <= {"note.md", ".scalebook"}  # nothing half written stays
    assert path.read_text(encoding="utf-8") == "before"
    assert classify(error.value).failure_class is FailureClass.DISK_FULL
    with pytest.raises(KeyError), machine_errors.disk_errors(tmp_path):
        raise KeyError("x")
