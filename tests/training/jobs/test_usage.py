import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs import usage
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.jobs.usage import GpuWorker, UsageMeter, gpu_workers
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.training.benches import wait_for
from tests.training.jobs.fake_nvml import FakeGpu, FakeProcess, Put

MB = 200
BUSY = f"""
import os, sys
memory = bytearray(os.urandom(1000) * {MB * 1000})
if os.fork() == 0:
    while True: pass
print("ready", flush=True)
while True: pass
"""
ELSE = 1
"""A pid that is not of the job."""


@pytest.fixture
def busy() -> Iterator[JobStart]:
    """Two processes that compute, and share the memory that one has filled."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    started = JobStart(LocalHandle(ProcessId.of(process.pid)), time.time())
    yield started
    started.executor.stop(started.handle, "kill")
    process.wait(10)
    process.stdout.close()


def test_cpu_is_of_all_processes_and_shared_memory_counts_once(busy: JobStart) -> None:
    first = busy.executor.usage(busy.handle)
    assert first is not None
    assert MB < first.memory_mb < 1.5 * MB
    wait_for(lambda: cpu_s(busy) >= first.cpu_s + 0.2, "it to compute")
    both = [sum(process.cpu_times()[:2]) for process in processes_of(busy)]
    assert len(both) == 2
    assert all(seconds > 0.05 for seconds in both)


def cpu_s(started: JobStart) -> float:
    found = started.executor.usage(started.handle)
    assert found is not None
    return found.cpu_s


def processes_of(started: JobStart) -> list[psutil.Process]:
    main = psutil.Process(started.handle.process.pid)
    return [main, *main.children()]


def test_samples_are_lines_of_a_file_and_half_a_line_is_none(tmp_path: Path, busy: JobStart) -> None:
    job = JobFolder(tmp_path)
    assert usage.read_usage(job) == []
    meter, begin = UsageMeter(job, busy), time.monotonic()
    meter.sample(begin)
    meter.sample(begin + 0.1)
    assert usage.read_usage(job) == []  # of the first stretch only the beginning is known
    before = cpu_s(busy)
    wait_for(lambda: cpu_s(busy) >= before + 0.3, "it to compute")
    meter.sample(begin + 1.0)
    meter.sample(begin + 1.5)
    (sample,) = usage.read_usage(job)
    assert 0.1 <= sample.cores < 100
    assert MB < sample.memory_mb < 1.5 * MB
    assert 1.0 <= sample.seconds < 60
    meter.sample(begin + 3.0)
    assert len(usage.read_usage(job)) == 2
    with usage.file_of(job).open("a") as file:
        file.write('{"seconds": 1')
    assert len(usage.read_usage(job)) == 2


def test_a_job_that_has_ended_takes_nothing(busy: JobStart) -> None:
    busy.executor.stop(busy.handle, "kill")
    deadline = time.monotonic() + 10
    while busy.executor.usage(busy.handle) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_are_known_by_what_they_call_themselves(nvml: Put) -> None:
    """And nobody else's processes are told."""

    def body(worker: int) -> list[GpuWorker]:
        pid = os.getpid()
        processes = {pid: FakeProcess(100 + worker, {5: 100, 6: 50}), ELSE: FakeProcess(9_000, {5: 10, 7: 10})}
        nvml([FakeGpu("GPU-a", processes=processes)])
        return gpu_workers(["GPU-a"], [pid], since=0.0)

    told = run_workers(2, body)
    assert told == [[GpuWorker("GPU-a", f"worker {worker}", 0.75, 100.0 + worker)] for worker in (0, 1)]


def test_a_process_that_plays_all_workers_has_no_number(nvml: Put) -> None:
    nvml([FakeGpu("GPU-a", processes={os.getpid(): FakeProcess(100, {2_000_000: 75, 4_000_000: 25})})])
    assert gpu_workers(["GPU-a"], [os.getpid()], since=0.0) == [GpuWorker("GPU-a", "", 0.5, 100.0)]
    assert gpu_workers(["GPU-a"], [os.getpid()], since=3.0) == [GpuWorker("GPU-a", "", 0.25, 100.0)]
    assert gpu_workers(["GPU-a"], [os.getpid()], since=5.0) == [GpuWorker("GPU-a", "", 0.0, 100.0)]


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        (lambda: FakeGpu("GPU-a", processes=None), []),
        (lambda: FakeGpu("GPU-a", lost=True), []),
        (lambda: FakeGpu("GPU-a", processes={ELSE: FakeProcess(5)}), []),  # as in a container, with the host's numbers
        (lambda: FakeGpu("GPU-a", processes={os.getpid(): FakeProcess(None)}), [GpuWorker("GPU-a", "", None, None)]),
        (
            lambda: FakeGpu("GPU-c", instances=[FakeGpu("MIG-a", processes={os.getpid(): FakeProcess(5, {1: 50})})]),
            [GpuWorker("MIG-a", "", None, 5.0)],
        ),
    ],
    ids=["tells nothing", "lost", "other numbers", "names alone", "a part of a GPU"],
)
def test_what_is_not_told_is_unknown(nvml: Put, gpu: Callable[[], FakeGpu], told: list[GpuWorker]) -> None:
    nvml([gpu()])
    assert gpu_workers([told[0].uuid if told else "GPU-a"], [os.getpid()], since=0.0) == told


def test_samples_of_a_job_have_its_workers(nvml: Put, tmp_path: Path) -> None:
    far = int(1e18)  # us, later than any sample
    nvml([FakeGpu("GPU-a", processes={os.getpid(): FakeProcess(77, {far: 25})})])
    job = JobFolder(tmp_path)
    meter = UsageMeter(job, JobStart(LocalHandle.of_this_process(leads_session=False), time.time(), gpus=["GPU-a"]))
    begin = time.monotonic()
    meter.sample(begin)
    meter.sample(begin + 1.0)
    (sample,) = usage.read_usage(job)
    assert sample.workers == [GpuWorker("GPU-a", "", 0.25, 77.0)]
    line = json.loads(usage.file_of(job).read_text())
    del line["workers"]  # as earlier versions wrote it
    usage.file_of(job).write_text(json.dumps(line))
    assert usage.read_usage(job)[0].workers == []
