"""kill -9 of everything that can be killed: what was promised happens, nothing hangs, no process is left."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobStart, Result
from tests.training.benches import Bench, until_state, wait_for


def test_a_killed_job_is_closed_with_its_cause(bench: Bench) -> None:
    job = bench.job(seconds=60, child=True)
    bench.supervise()
    wait_for(lambda: "child" in job.tail(), "its child")
    started = job.started()
    assert started is not None
    started.handle.process.send(signal.SIGKILL)
    wait_for(lambda: not started.handle.process.alive(), "its death")
    assert job.state() == "failed"  # at once, before anybody has written a result
    result = wait_for(job.result, "a result")
    assert (result.status, result.failure) == ("failed", "killed")
    assert result.cause == f"its main process (pid {started.handle.process.pid}) was ended by SIGKILL"
    assert result.advice
    assert started.handle.process.session() == []


def test_of_a_job_whose_folder_was_deleted_nothing_is_said_but_that(bench: Bench, tmp_path: Path) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    wait_for((job.path / "usage.jsonl").exists, "the supervisor's watch over it")
    started = job.started()
    assert started is not None
    job.path.rename(tmp_path / "gone")  # at once, whoever writes into it
    started.handle.process.send(signal.SIGKILL)
    wait_for(lambda: f"job {job.id} has ended, and its folder was deleted" in bench.log(), "its end to be said")
    assert "failed" not in bench.log()
    assert not job.path.exists()


def test_jobs_survive_the_supervisor_and_are_adopted(bench: Bench) -> None:
    running, waiting = bench.job(workers=64, seconds=2.0), bench.job(workers=64)
    first = bench.supervise()
    until_state(running, "running")
    warm = bench.warm()
    first.send(signal.SIGKILL)
    wait_for(lambda: not first.alive() and not warm.alive(), "supervisor and warm process to die")
    assert running.state() == "running"
    second = bench.supervise()
    assert second != first
    time.sleep(0.5)
    assert waiting.state() == "waiting"  # the adopted job keeps its devices
    assert until_state(running, "finished", "failed") == "finished"
    assert until_state(waiting, "finished", "failed") == "finished"


def test_a_job_killed_while_nobody_watched_is_closed(bench: Bench) -> None:
    job = bench.job(seconds=60, child=True)
    first = bench.supervise()
    wait_for(lambda: "child" in job.tail(), "its child")
    first.send(signal.SIGKILL)
    wait_for(lambda: not first.alive(), "the supervisor's death")
    started = job.started()
    assert started is not None
    started.handle.process.send(signal.SIGKILL)
    wait_for(lambda: job.state() == "failed", "the state that follows from its death")
    bench.supervise()
    result = wait_for(job.result, "a result")
    assert result.failure == "killed"
    assert result.cause.endswith("died while no supervisor was watching it")
    assert started.handle.process.session() == []


def test_the_warm_process_is_replaced_and_its_jobs_go_on(bench: Bench) -> None:
    job = bench.job(seconds=1.5)
    bench.supervise()
    until_state(job, "running")
    warm = bench.warm()
    warm.send(signal.SIGKILL)
    wait_for(lambda: not warm.alive(), "its death")
    crashed = bench.job(end="exit")
    result = wait_for(crashed.result, "a run from the next warm process")
    assert "exit code 7" in result.cause
    assert until_state(job, "finished", "failed") == "finished"


def test_an_orphan_of_a_dead_warm_process_has_its_signal_known(bench: Bench) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    until_state(job, "running")
    warm, started = bench.warm(), job.started()
    assert started is not None
    warm.send(signal.SIGKILL)
    wait_for(lambda: not warm.alive(), "its death")
    started.handle.process.send(signal.SIGKILL)
    assert wait_for(job.result, "a result").cause.endswith("was ended by SIGKILL")


def test_a_process_with_the_same_pid_is_not_the_job(bench: Bench) -> None:
    job = bench.job(seconds=60)
    me = ProcessId.of()
    job.write(JobStart(LocalHandle(replace(me, start=me.start - 360_000)), time.time() - 3600, [0]))
    assert job.state() == "failed"
    bench.supervise()
    assert wait_for(job.result, "a result").failure == "killed"
    assert me.alive()  # this process carries the pid, and nobody has touched it


def test_an_inline_job_is_closed_without_touching_its_session(bench: Bench) -> None:
    job = bench.job()
    log = job.log.open("a")
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    log.close()
    job.write(JobStart(LocalHandle(ProcessId.of(pid), leads_session=False), time.time(), [], inline=True))
    bench.supervise()
    assert job.state() == "running"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert wait_for(job.result, "a result").failure == "killed"


def test_a_process_that_comes_when_its_job_was_given_up_does_not_run_it(bench: Bench) -> None:
    job = bench.job()
    job.write(Result("failed", time.time(), "unknown", "none of the run's processes started"))
    assert not job.claim(JobStart(LocalHandle.of_this_process(), time.time(), []))
    assert not job.claimed()
    assert job.state() == "failed"


def test_a_job_claimed_by_another_process_is_not_run_twice(bench: Bench) -> None:
    job = bench.job(seconds=0.2)
    mine = JobStart(LocalHandle.of_this_process(), time.time(), [], inline=True)
    assert job.claim(mine)
    assert not job.claim(replace(mine, started=0.0))
    assert job.started() == mine
    bench.supervise()
    time.sleep(0.5)
    assert job.started() == mine
    assert not job.log.exists()
    assert job.state() == "running"
