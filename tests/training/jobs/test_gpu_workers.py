import json
import os
import time
from pathlib import Path

import pytest

from scalebook.training.jobs import usage
from scalebook.training.jobs.executors.local.executor import LocalHandle
from scalebook.training.jobs.folder import JobFolder, Started
from scalebook.training.jobs.gpu_workers import GpuWorker, gpu_workers
from scalebook.training.jobs.usage import UsageMeter
from scalebook.training.strategies.processes import run_workers
from tests.fake_nvml import FakeGpu, FakeProcess, Put

ELSE = 1
"""A pid that is not of the job."""


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
        (FakeGpu("GPU-a", processes=None), []),
        (FakeGpu("GPU-a", lost=True), []),
        (FakeGpu("GPU-a", processes={ELSE: FakeProcess(5)}), []),  # as in a container, with the host's numbers
        (FakeGpu("GPU-a", processes={os.getpid(): FakeProcess(None)}), [GpuWorker("GPU-a", "", None, None)]),
        (
            FakeGpu("GPU-c", instances=[FakeGpu("MIG-a", processes={os.getpid(): FakeProcess(5, {1: 50})})]),
            [GpuWorker("MIG-a", "", None, 5.0)],
        ),
    ],
    ids=["tells nothing", "lost", "other numbers", "names alone", "a part of a GPU"],
)
def test_what_is_not_told_is_unknown(nvml: Put, gpu: FakeGpu, told: list[GpuWorker]) -> None:
    nvml([gpu])
    assert gpu_workers([told[0].uuid if told else "GPU-a"], [os.getpid()], since=0.0) == told


def test_samples_of_a_job_have_its_workers(nvml: Put, tmp_path: Path) -> None:
    far = int(1e18)  # us, later than any sample
    nvml([FakeGpu("GPU-a", processes={os.getpid(): FakeProcess(77, {far: 25})})])
    job = JobFolder(tmp_path)
    meter = UsageMeter(job, Started(LocalHandle.own(leads_session=False), time.time(), gpus=["GPU-a"]))
    begin = time.monotonic()
    meter.look(begin)
    meter.look(begin + 1.0)
    (sample,) = usage.read(job)
    assert sample.workers == [GpuWorker("GPU-a", "", 0.25, 77.0)]
    line = json.loads(usage.file_of(job).read_text())
    del line["workers"]  # as earlier versions wrote it
    usage.file_of(job).write_text(json.dumps(line))
    assert usage.read(job)[0].workers == []
