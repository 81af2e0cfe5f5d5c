import mmap
import os
import time

import pytest

from scalebook.training.engine.memory import region as event_module
from scalebook.training.engine.memory.region import Event
from tests.training.engine.forking import run_workers


def test_a_wake_reaches_a_sleeping_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before it would look by itself."""
    monkeypatch.setattr(event_module, "SLICE_S", 0.99)
    memory = memoryview(mmap.mmap(-1, 4096))
    event, told, woken = Event(memory[:8]), memory[64:72].cast("q"), memory[128:136].cast("d")

    def body(worker: int) -> None:
        if worker == 0:
            event.wait(lambda: told[0] == 1, 10.0, lambda: "the other")
            woken[0] = time.monotonic()
        else:
            time.sleep(0.3)
            told[0] = 1
            event.wake()
            at = time.monotonic()
            while not woken[0]:
                time.sleep(0.001)
            assert woken[0] - at < 0.5

    run_workers(2, body)


def test_waiting_ends_at_the_deadline_and_says_for_what() -> None:
    event, started = Event(memoryview(mmap.mmap(-1, 4096))[:8]), time.monotonic()
    with pytest.raises(TimeoutError, match=r"worker 1 waits for the moon: nothing happened for 0.3 s"):
        event.wait(lambda: False, 0.3, lambda: "worker 1 waits for the moon")
    assert 0.3 <= time.monotonic() - started < 10


def test_a_wake_buys_time() -> None:
    event = Event(memoryview(mmap.mmap(-1, 4096))[:8])

    def body(worker: int) -> float:
        if worker == 1:
            for _ in range(4):
                time.sleep(0.5)
                event.wake()
            return 0.0
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            event.wait(lambda: False, 1.5, lambda: "nothing")
        return time.monotonic() - started

    assert run_workers(2, body)[0] > 3.0


def test_a_killed_sleeper_leaves_nothing_that_stops_the_others() -> None:
    memory = memoryview(mmap.mmap(-1, 4096))
    event, told = Event(memory[:8]), memory[64:72].cast("q")
    sleeper = os.fork()
    if sleeper == 0:
        event.wait(lambda: False, 60.0, lambda: "never")
    time.sleep(0.2)
    os.kill(sleeper, 9)
    os.waitpid(sleeper, 0)
    told[0] = 1
    event.wake()
    event.wait(lambda: told[0] == 1, 1.0, lambda: "what is there")
