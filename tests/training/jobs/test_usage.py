import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scalebook.training.jobs import usage
from scalebook.training.jobs.executors.local.executor import LocalHandle
from scalebook.training.jobs.folder import JobFolder, Started
from scalebook.training.jobs.process import ProcessId
from scalebook.training.jobs.usage import UsageMeter

MB = 200
BUSY = f"""
import os, sys
memory = bytearray(os.urandom(1000) * {MB * 1000})
if os.fork() == 0:
    while True: pass
print("ready", flush=True)
while True: pass
"""


@pytest.fixture
def busy() -> Iterator[Started]:
    """Two processes that compute, and share the memory that one has filled."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    started = Started(LocalHandle(ProcessId.of(process.pid)), time.time())
    yield started
    started.executor.stop(started.handle, "kill")
    process.wait(10)
    process.stdout.close()


def test_cpu_is_of_all_processes_and_shared_memory_counts_once(busy: Started) -> None:
    first = busy.executor.taken(busy.handle)
    assert first is not None
    assert MB < first.memory_mb < 1.5 * MB
    deadline = time.monotonic() + 30
    while (now := busy.executor.taken(busy.handle)) is not None and now.cpu_s < first.cpu_s + 0.5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    both = [sum(process.cpu_times()[:2]) for process in processes_of(busy)]
    assert len(both) == 2
    assert all(seconds > 0.05 for seconds in both)


def processes_of(started: Started) -> list[psutil.Process]:
    main = psutil.Process(started.handle.process.pid)
    return [main, *main.children()]


def test_samples_are_lines_of_a_file_and_half_a_line_is_none(tmp_path: Path, busy: Started) -> None:
    job = JobFolder(tmp_path)
    assert usage.read(job) == []
    meter, begin = UsageMeter(job, busy), time.monotonic()
    meter.look(begin)
    meter.look(begin + 0.1)
    assert usage.read(job) == []  # of the first stretch only the beginning is known
    time.sleep(1.0)
    meter.look(begin + 1.0)
    meter.look(begin + 1.5)
    (sample,) = usage.read(job)
    assert 0.1 <= sample.cores < 100  # on a busy machine less than the two that it would take
    assert MB < sample.memory_mb < 1.5 * MB
    assert 1.0 <= sample.seconds < 60
    meter.look(begin + 3.0)
    assert len(usage.read(job)) == 2
    with usage.file_of(job).open("a") as file:
        file.write('{"seconds": 1')
    assert len(usage.read(job)) == 2


def test_a_job_that_has_ended_takes_nothing(busy: Started) -> None:
    busy.executor.stop(busy.handle, "kill")
    deadline = time.monotonic() + 10
    while busy.executor.taken(busy.handle) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
