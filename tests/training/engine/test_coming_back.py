"""What the others see when a worker dies and is to come back."""

import threading
import time

import pytest

from scalebook.training.engine import SharedRun
from scalebook.training.engine.memory.region import FINISHED


def test_who_waits_for_the_end_of_all_waits_for_one_that_comes_back() -> None:
    """Never gone in between, however the monitor is scheduled: the waiting one is woken by every step of it."""
    run = SharedRun(2)
    waiting = run.member(0, 5.0)
    ended: list[float] = []

    def wait() -> None:
        run.control.clock.play(waiting.wait_for_others())
        ended.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    for _ in range(2000):
        run.rejoin(1)
        assert ended == []
    time.sleep(0.01)
    assert ended == []
    run.control.set_counter(1, FINISHED, 1)
    run.control.event.wake()
    waiter.join(5.0)
    assert len(ended) == 1


def test_nobody_waits_for_one_that_is_marked_dead() -> None:
    run = SharedRun(2)
    waiting = run.member(0, 0.2)
    with pytest.raises(TimeoutError, match="worker 0 gave up waiting"):
        run.control.clock.play(waiting.wait_for_others())
    run.mark_dead(1)
    run.control.clock.play(waiting.wait_for_others())
