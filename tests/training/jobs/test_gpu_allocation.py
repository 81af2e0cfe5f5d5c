"""Runs that begin at once, in the foreground and of the queue, in processes of their own: each GPU is lent once."""

import json
import multiprocessing
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import locks, record_folder
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import gpu_allocation, job_requests
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.executor import GPUS_TAKEN, LocalHandle
from scalebook.training.jobs.fork_server import Order, _run
from scalebook.training.jobs.job_folder import JobRequest, JobStart
from scalebook.training.jobs.supervisor_handle import SupervisorLock
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.supervisor_loop import SupervisorLoop
from tests.training.benches import Bench, bench
from tests.training.jobs.fake_nvml import Put, eight
from tests.training.jobs.machines import Cores

__all__ = ["bench"]
WAIT_S = 30.0
FORK = multiprocessing.get_context("fork")
Body = Callable[[], list[str]]


def asked(workspace: Workspace, share: float = 1.0) -> JobRequest:
    """A run on one GPU."""
    return JobRequest(
        id=uuid.uuid4().hex, created=time.time(), mlflow_experiment="test", tracking_uri=workspace.tracking_uri(),
        seed=1, workers=1, accelerator="gpu", devices=1, gpu_share=share,
    )  # fmt: skip


def in_the_foreground(workspace: Workspace, share: float = 1.0) -> Body:
    """Takes a GPU as `scalebook fit` does, or is refused."""

    def take() -> list[str]:
        with suppress(ConfigError):
            started = job_requests._write(workspace, asked(workspace, share), "{}", inline=True).started()
            assert started is not None
            return started.gpus
        return []

    return take


def of_the_queue(bench: Bench, gpu: str, share: float = 1.0) -> Body:
    """Claims its folder as the process of a job does whose plan has lent it this GPU."""
    job = bench.add(asked(bench.workspace, share), {})

    def take() -> list[str]:
        with suppress(gpu_allocation.TakenError):
            assert gpu_allocation.claim(
                bench.workspace, job, JobStart(LocalHandle.of_this_process(), time.time(), [0], [gpu])
            )
            return [gpu]
        return []

    return take


@contextmanager
def at_once(folder: Path, bodies: list[Body]) -> Iterator[list[list[str]]]:
    """What each got, in a process of its own, all begun at once; they live while inside."""
    together, leaving = FORK.Barrier(len(bodies)), FORK.Event()

    def live(number: int, body: Body, together: Barrier, leaving: Event) -> None:
        together.wait(WAIT_S)
        got = body()
        (folder / f"{number}.part").write_text(json.dumps(got), encoding="utf-8")
        (folder / f"{number}.part").rename(folder / f"{number}.json")
        leaving.wait(WAIT_S)

    processes = [FORK.Process(target=live, args=(i, body, together, leaving)) for i, body in enumerate(bodies)]
    answers = [folder / f"{number}.json" for number in range(len(bodies))]
    try:
        for process in processes:
            process.start()
        until = time.monotonic() + WAIT_S
        while not all(answer.exists() for answer in answers):
            assert time.monotonic() < until, "no answer"
            time.sleep(0.01)
        yield [json.loads(answer.read_text(encoding="utf-8")) for answer in answers]
    finally:
        leaving.set()
        for process in processes:
            process.join(WAIT_S)
            process.kill()
        for answer in answers:
            answer.unlink(missing_ok=True)


@pytest.mark.sampled
@pytest.mark.parametrize("foreground", [1, 2])
def test_who_notes_a_gpu_first_has_it(foreground: int, nvml: Put, bench: Bench, tmp_path: Path) -> None:
    """One GPU, and two of the queue whose plans, each by itself, lend it: one of all gets it, again and again."""
    nvml(eight()[:1])
    for _ in range(4):
        bodies = [in_the_foreground(bench.workspace) for _ in range(foreground)]
        bodies += [of_the_queue(bench, "GPU-0") for _ in range(2)]
        with at_once(tmp_path, bodies) as got:
            assert sorted(got) == [[]] * (foreground + 1) + [["GPU-0"]]
        assert gpu_allocation.running_allocations(bench.workspace) == []


def test_two_gpus_go_to_two_runs(nvml: Put, bench: Bench, tmp_path: Path) -> None:
    nvml(eight()[:2])
    with at_once(tmp_path, [in_the_foreground(bench.workspace) for _ in range(3)]) as got:
        assert sorted(got) == [[], ["GPU-0"], ["GPU-1"]]


def test_runs_that_share_a_gpu_have_no_more_than_all_of_it(nvml: Put, bench: Bench, tmp_path: Path) -> None:
    nvml(eight()[:1])
    bodies = [of_the_queue(bench, "GPU-0", 0.5) for _ in range(2)]
    bodies += [in_the_foreground(bench.workspace, 0.5) for _ in range(2)]
    with at_once(tmp_path, bodies) as got:
        assert sorted(got) == [[], [], ["GPU-0"], ["GPU-0"]]
        assert [lease.share for lease in gpu_allocation.running_allocations(bench.workspace)] == [0.5, 0.5]


def test_a_job_whose_gpu_was_taken_meanwhile_waits_again(nvml: Put, bench: Bench, tmp_path: Path) -> None:
    """Its process ends before it runs anything, and the supervisor's next plan has it."""
    nvml(eight()[:1])
    job = bench.add(asked(bench.workspace), {})
    order = Order(str(job.path), str(bench.workspace.root), this_machine().cores[:1], ["GPU-0"])
    with at_once(tmp_path, [in_the_foreground(bench.workspace)]) as got:
        assert got == [["GPU-0"]]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _run(order, never, {})
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == GPUS_TAKEN
        assert (job.state(), job.claimed()) == ("waiting", False)
        assert f"job {job.id} waits again: another run has taken GPU-0 in the meantime" in job.log.read_text(
            encoding="utf-8"
        )


def test_the_supervisor_lets_it_wait(tmp_path: Path) -> None:
    held = Bench(tmp_path)  # not the fixture, at whose end the supervisor, here this process, is ended
    job = held.add(asked(held.workspace), {})
    turns = SupervisorLoop(SupervisorLock(held.workspace), JobLimits(poll_s=0.0), Cores(0, 1), "none", ())
    try:
        turns._discover()
        turns._hear(job.id, GPUS_TAKEN, "")
        assert (job.state(), list(turns.open), turns._codes) == ("waiting", [job.id], {})
    finally:
        turns.close()


def never(folder: Path) -> int:
    raise AssertionError(f"{folder} was run")


def test_who_cannot_look_for_long_says_so(
    nvml: Put, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(eight()[:1])
    monkeypatch.setattr(gpu_allocation, "PATIENCE_S", 0.1)
    handle = locks.opened(bench.workspace.hidden / gpu_allocation.LOCK)
    assert locks.acquired(handle)
    try:
        with pytest.raises(
            ConfigError, match=r"fit: cannot begin: another run that is starting has held lending\.lock"
        ):
            job_requests._write(bench.workspace, asked(bench.workspace), "{}", inline=True)
        assert list(bench.workspace.jobs.iterdir()) == []
        with at_once(tmp_path, [of_the_queue(bench, "GPU-0"), on_a_cpu(bench)]) as got:
            assert got == [[], ["began"]]
    finally:
        os.close(handle)


def on_a_cpu(bench: Bench) -> Body:
    """Nobody holds it up."""
    job = bench.add(replace(asked(bench.workspace), accelerator="cpu"), {})

    def take() -> list[str]:
        return (
            ["began"]
            if gpu_allocation.claim(bench.workspace, job, JobStart(LocalHandle.of_this_process(), time.time(), [0]))
            else []
        )

    return take


def test_a_record_that_cannot_be_read_holds_up_nobody(nvml: Put, bench: Bench, tmp_path: Path) -> None:
    nvml(eight()[:1])
    (tmp_path / "first").mkdir()
    with at_once(tmp_path / "first", [of_the_queue(bench, "GPU-0")]):
        (lease,) = gpu_allocation.running_allocations(bench.workspace)
        (bench.workspace.jobs / lease.id / "job.json").write_text("{", encoding="utf-8")
        record_folder._kept.cache_clear()  # who begins later reads it anew
        with at_once(tmp_path, [in_the_foreground(bench.workspace)]) as got:
            assert got == [["GPU-0"]]
    shutil.rmtree(bench.workspace.jobs / lease.id)
