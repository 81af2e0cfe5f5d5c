"""Who has come, who has finished; every wait has a deadline. Death is noticed by whoever made the processes."""

import time
from collections.abc import Callable
from typing import Final

from training.ps.region import ARRIVALS, FINISHED, REFUSED, UPDATES, Control

POLL_S: Final = 0.002


class Membership:
    """One worker's part in the group. Each word it writes is its own, so nothing here needs the lock."""

    def __init__(self, control: Control, worker: int, deadline_s: float) -> None:
        self._control, self.worker, self.deadline_s = control, worker, deadline_s

    def rendezvous(self, name: str) -> None:
        """Wait until every worker has come to as many rendezvous as this one; TimeoutError names who is missing.

        For the time before training only: a worker that computes waits for nobody.
        """
        mine = self._control.word(self.worker, ARRIVALS) + 1
        self._control.set_word(self.worker, ARRIVALS, mine)
        late = self._wait(lambda: [w for w, n in enumerate(self._control.column(ARRIVALS)) if n < mine])
        if late:
            raise TimeoutError(f"rendezvous {name!r}: workers {late} did not come within {self.deadline_s:g} s")

    def finish(self) -> None:
        """Say that this worker will not push any more."""
        self._control.set_word(self.worker, FINISHED, 1)

    def wait_for_others(self) -> None:
        """Wait until all other workers have finished; TimeoutError when none of them pushes for the deadline."""
        running = self._wait(
            lambda: [w for w, done in enumerate(self._control.column(FINISHED)) if not done and w != self.worker]
        )
        if running:
            raise TimeoutError(f"workers {running} neither pushed nor finished within {self.deadline_s:g} s")

    def _wait(self, missing: Callable[[], list[int]]) -> list[int]:
        """Poll until nobody is missing; who is, once `deadline_s` have passed without any push."""
        seen, until = self._pushes(), time.monotonic() + self.deadline_s
        while left := missing():
            now = time.monotonic()
            if (pushes := self._pushes()) != seen:
                seen, until = pushes, now + self.deadline_s
            if now > until:
                return left
            time.sleep(POLL_S)
        return []

    def _pushes(self) -> int:
        return sum(self._control.column(UPDATES)) + sum(self._control.column(REFUSED))
