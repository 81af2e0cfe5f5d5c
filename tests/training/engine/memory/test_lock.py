import mmap
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import psutil
import pytest

from scalebook.training.engine.memory.lock import LOCK_BYTES, LockTimeout, RobustMutex


def shared() -> memoryview:
    return memoryview(mmap.mmap(-1, 4096))


def forked(body: Callable[[], object]) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    return process


def asleep(process: BaseProcess) -> BaseProcess:
    """The process, once it has slept for 0.2 s."""
    since = time.monotonic()
    while time.monotonic() - since < 0.2:
        if psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
            since = time.monotonic()
        time.sleep(0.01)
    return process


def test_increments_of_four_processes_all_count() -> None:
    memory = shared()
    lock, counter = RobustMutex(memory[:LOCK_BYTES]), memory[128:136].cast("q")

    def count() -> None:
        for _ in range(300):
            lock.acquire(30.0)
            value = counter[0]
            time.sleep(0)
            counter[0] = value + 1
            lock.release()

    processes = [forked(count) for _ in range(4)]
    for process in processes:
        process.join(30)
    assert counter[0] == 1200


def test_an_owner_killed_inside_is_noticed_once() -> None:
    memory = shared()
    lock, held = RobustMutex(memory[:LOCK_BYTES]), memory[128:136].cast("q")

    def hold() -> None:
        lock.acquire(5.0)
        held[0] = 1
        time.sleep(60)

    owner = forked(hold)
    while not held[0]:
        time.sleep(0.001)
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    started = time.monotonic()
    assert lock.acquire(30.0) is True
    assert time.monotonic() - started < 20  # of the 30 that it may wait
    lock.release()
    assert lock.acquire(1.0) is False
    lock.release()
    owner.join(5)


def test_waiting_ends_at_the_deadline() -> None:
    lock = RobustMutex(shared()[:LOCK_BYTES])
    lock.acquire(1.0)

    def wait() -> None:
        try:
            lock.acquire(0.1)
        except LockTimeout:
            os._exit(7)

    other = forked(wait)
    other.join(10)
    assert other.exitcode == 7
    lock.release()


@pytest.mark.alone  # next to others, the first process may get a turn before the lock is taken again
def test_a_wake_up_that_dies_with_its_receiver_keeps_nobody_asleep() -> None:
    """A release wakes one process. When that is killed before it runs, and the lock is taken and released meanwhile,
    nobody else is woken; the free lock must be found all the same.

    So that the first one has no chance to run, it shares this process's CPU and only runs when that is idle.
    """
    memory = shared()
    lock, got, cpus = RobustMutex(memory[:LOCK_BYTES]), memory[128:136].cast("d"), os.sched_getaffinity(0)

    def first() -> None:
        lock.acquire(20.0)
        time.sleep(60)

    def second() -> None:
        os.sched_setaffinity(0, cpus)
        lock.acquire(20.0)
        got[0] = time.monotonic()
        lock.release()

    os.sched_setaffinity(0, {min(cpus)})
    try:
        lock.acquire(1.0)
        one = asleep(forked(first))
        assert one.pid is not None
        os.sched_setscheduler(one.pid, os.SCHED_IDLE, os.sched_param(0))
        other = asleep(forked(second))
        lock.release()
        lock.acquire(5.0)
        os.kill(one.pid, signal.SIGKILL)
        one.join(10)
        released = time.monotonic()
        lock.release()
    finally:
        os.sched_setaffinity(0, cpus)
    other.join(30)
    assert other.exitcode == 0
    assert got[0] - released < 10  # of the 20 that it may wait
