"""Starting in order, on leased devices; stopping; going home."""

import os
import shutil
import signal
import time

import psutil
import pytest

from scalebook.training.base.files import records
from scalebook.training.jobs import supervisor_handle
from scalebook.training.jobs.supervisor_handle import Status, status
from scalebook.training.jobs.waiting_jobs import NO_SUPERVISOR, waiting_reasons
from tests.training.benches import Bench, cores, until_state, wait_for

pytestmark = pytest.mark.long


def test_a_job_runs_in_a_process_of_its_own_on_its_cores(bench: Bench) -> None:
    job = bench.job(devices=True)
    bench.supervise()
    assert until_state(job, "finished") == "finished"
    started = job.started()
    assert started is not None
    assert started.cores == sorted(os.sched_getaffinity(0))[:1]
    log = job.log.read_text(encoding="utf-8")
    process = started.handle.process
    assert log.splitlines()[0] == f"scalebook: job {job.id}, process {process.pid}, cores {started.cores[0]}"
    assert f"affinity {started.cores} gpus \n" in log
    assert f"cwd {bench.workspace.root} input '' session True" in log
    assert "open [0, 1, 2, 3]" in log


def test_jobs_start_by_priority_then_age_one_after_the_other(bench: Bench) -> None:
    jobs = [bench.job(workers=64, seconds=0.1, priority=priority) for priority in (0, 0, 5)]
    bench.supervise()
    for job in jobs:
        until_state(job, "finished")
    starts = [started.started for job in jobs if (started := job.started())]
    assert starts[2] < starts[0] < starts[1]
    ends = [result.ended for job in jobs if (result := job.result())]
    assert ends[2] <= starts[0]
    assert ends[0] <= starts[1]


def test_a_waiting_job_says_why(bench: Bench) -> None:
    first = bench.job(workers=64, seconds=60, name="long")
    second, third = bench.job(workers=64), bench.job()
    assert waiting_reasons(bench.workspace) == {job.id: NO_SUPERVISOR for job in (first, second, third)}
    bench.supervise()
    until_state(first, "running")
    wait_for(first.progress, "progress")
    reasons = waiting_reasons(bench.workspace)
    share = {1: "it", 2: "both"}.get(cores(), "all")
    assert reasons[second.id].startswith(f"waits for {cores()} cores; 0 of {cores()} free, run long has {share}, about")
    assert reasons[third.id] == "behind 1 run"
    assert first.id not in reasons


def test_stop_lets_a_job_end_by_itself(bench: Bench) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    until_state(job, "running")
    job.stop_file.touch()
    assert until_state(job, "stopped") == "stopped"
    result = job.result()
    assert result is not None
    assert result.cause == "stopped on request"


def test_stop_of_a_waiting_job_needs_no_process(bench: Bench) -> None:
    bench.job(workers=64, seconds=60)
    waiting = bench.job(workers=64)
    bench.supervise()
    waiting.stop_file.touch()
    result = wait_for(waiting.result, "a result")
    assert (result.status, result.cause) == ("stopped", "stopped on request, before it started")
    assert waiting.started() is None


def test_stop_of_a_deaf_job_goes_on_to_sigterm(bench: Bench) -> None:
    job = bench.job(seconds=60, deaf=True)
    bench.supervise()
    until_state(job, "running")
    job.stop_file.touch()
    assert job.state() == "stopping"
    result = wait_for(job.result, "a result")
    assert result.status == "stopped"
    assert result.cause.endswith("got SIGTERM")


def test_stop_of_a_stubborn_job_ends_its_whole_session(bench: Bench) -> None:
    job = bench.job(seconds=60, deaf=True, stubborn=True, child=True)
    bench.supervise()
    wait_for(lambda: "child" in job.tail(), "its child")
    started = job.started()
    assert started is not None
    assert len(started.handle.process.session()) == 2
    job.stop_file.touch()
    result = wait_for(job.result, "a result")
    assert result.status == "stopped"
    assert result.cause.endswith("got SIGTERM and SIGKILL")
    assert started.handle.process.session() == []


def test_a_job_that_shows_no_life_is_timed_out(bench: Bench) -> None:
    job = bench.job(seconds=60, frozen=True, deaf=True, stubborn=True)
    bench.supervise(stall_s=1.0)
    result = wait_for(job.result, "a result")
    assert (result.status, result.failure) == ("failed", "timed out")
    assert result.cause == "no sign of life for 1 s; ended by SIGTERM and SIGKILL"


def test_exit_codes_and_exceptions_are_explained(bench: Bench) -> None:
    crashed, left, silent = bench.job(end="crash"), bench.job(end="exit"), bench.job(end="silent")
    bench.supervise()
    causes = []
    for job, code in ((crashed, 1), (left, 7), (silent, 0)):
        result = wait_for(job.result, "a result")
        assert (result.status, result.failure) == ("failed", "unknown")
        assert f"ended with exit code {code} without a result" in result.cause
        causes.append(result.cause)
    assert causes[0].endswith("the last line of its log: RuntimeError: the stand-in was told to crash")


def test_it_goes_home_when_idle_and_leaves_nothing(bench: Bench) -> None:
    job = bench.job()
    process = bench.supervise(linger_s=0.3)
    until_state(job, "finished")
    warm = bench.warm()
    wait_for(lambda: not process.alive(), "the supervisor to leave")
    assert not warm.alive()
    assert supervisor_handle.running(bench.workspace) is None
    wait_for(lambda: not psutil.pid_exists(process.pid), "its parent to wait for it")


def test_an_owner_keeps_it_and_the_warm_process_ready(bench: Bench) -> None:
    with supervisor_handle.hold_supervisor(bench.workspace):
        process = bench.supervise(linger_s=0.2)
        wait_for(lambda: psutil.Process(process.pid).children(), "the warm process")
        time.sleep(1.5)
        assert process.alive()
    wait_for(lambda: not process.alive(), "the supervisor to leave")


def test_it_ends_when_its_folder_is_deleted_and_reports_that_once(bench: Bench) -> None:
    with supervisor_handle.hold_supervisor(bench.workspace):
        process = bench.supervise(linger_s=1.0)
        wait_for(lambda: psutil.Process(process.pid).children(), "the warm process")
        with (bench.workspace.hidden / "supervisor.log").open(encoding="utf-8") as log:
            shutil.rmtree(bench.workspace.root)
            wait_for(lambda: not process.alive(), "the supervisor to leave")
            assert len(log.read().splitlines()) < 10


def test_ensure_starts_only_one(bench: Bench) -> None:
    assert {bench.supervise() for _ in range(3)} == set(bench.supervisors)
    assert len(bench.supervisors) == 1


def test_whoever_waits_replaces_one_that_died(bench: Bench) -> None:
    first = bench.supervise()
    keeper = supervisor_handle.SupervisorKeeper(bench.workspace)
    time.sleep(supervisor_handle.KEEP_EVERY_S)
    assert not keeper.has_changed()
    first.send(signal.SIGKILL)
    wait_for(keeper.has_changed, "another supervisor")
    assert keeper.process is not None
    bench.supervisors.append(keeper.process)
    assert keeper.process == supervisor_handle.running(bench.workspace) != first
    assert keeper.problem == ""


def test_one_that_cannot_be_started_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_handle, "KEEP_EVERY_S", 0.0)
    monkeypatch.setattr(supervisor_handle, "KEEP_AGAIN_S", 0.2)
    keeper = supervisor_handle.SupervisorKeeper(bench.workspace)
    with monkeypatch.context() as patch:
        patch.setattr(supervisor_handle, "START_DEADLINE_S", 0.0)
        assert not keeper.has_changed()
    assert "did not start" in keeper.problem
    bench.supervise()
    wait_for(keeper.has_changed, "the keeper to see it")
    assert keeper.problem == ""


def test_it_is_light_and_quiet_when_idle(bench: Bench) -> None:
    process = psutil.Process(bench.supervise(poll_s=0.1).pid)
    time.sleep(0.5)
    before = sum(process.cpu_times()[:2])
    time.sleep(2.0)
    assert sum(process.cpu_times()[:2]) - before <= 0.06  # s of CPU in 2 s
    assert process.memory_info().rss < 60 * 2**20
    mapped = {map_.path for map_ in process.memory_maps()}
    assert not any("torch" in path or "mlflow" in path for path in mapped)


def test_torn_records_of_others_stop_neither_the_supervisor_nor_a_job(bench: Bench) -> None:
    torn = {name: bench.job() for name in ("process.json", "result.json", "job.json", "progress.json")}
    for name, job in torn.items():
        (job.path / name).write_bytes(b'{"version": 1, "pro')
    supervisor_handle.folder(bench.workspace).mkdir()
    (supervisor_handle.folder(bench.workspace) / "7.json").write_bytes(b"")
    (bench.workspace.hidden / "supervisor.json").write_bytes(b"\0" * 50)
    process = bench.supervise()
    assert until_state(torn["progress.json"], "finished", "failed") == "finished"
    result = wait_for(torn["process.json"].result, "its end")
    assert result.failure == "broken record"
    assert str(torn["process.json"].path / "process.json") in result.cause
    assert torn["result.json"].state() == "failed"
    assert process.alive()
    note = bench.workspace.hidden / "supervisor.json"
    note.write_bytes(b"torn")
    assert bench.supervise() == process  # who holds the lock is known without the note
    wait_for(lambda: (found := records.peek(note, Status)) and found.process == process, "the note to be mended")
    assert "Traceback" not in bench.log()


def test_with_a_cluster_that_cannot_be_used_jobs_wait_and_the_supervisor_lives(bench: Bench) -> None:
    settings, job = bench.workspace.root / "scalebook.toml", bench.job()
    settings.write_text('[cluster]\naddress = "elsewhere"', encoding="utf-8")
    process = bench.supervise()
    wait_for(lambda: (now := status(bench.workspace)) and "cluster.address" in now.problem, "the reason")
    assert (job.state(), process.alive()) == ("waiting", True)
    settings.unlink()
    assert until_state(job, "finished", "failed") == "finished"
    assert bench.supervise() == process
    assert (bench.log().count("cluster.address"), "Traceback" in bench.log()) == (1, False)
