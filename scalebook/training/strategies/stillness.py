"""Whether a run still moves: a deadline for what has no signs of life of its own, such as a model's `setup`."""

from collections.abc import Iterable
from time import monotonic
from typing import Final

from scalebook.training.strategies.family import Done, descendants, done

LIMIT_S: Final = 60.0
"""Before training, so long without a sign of life of any process ends the run."""
CPU_S: Final = 0.2  # a sign of life; a worker that waits at a rendezvous uses a tenth of it in LIMIT_S
MOVED_BYTES: Final = 256 * 1024  # read or written, also one


class Stillness:
    """For how long no process of a run has computed, read or written. Time is not counted while the monitor sleeps."""

    def __init__(self) -> None:
        self._mark: dict[int, Done] = {}
        self._still_s, self._looked = 0.0, monotonic()

    def seconds(self, pids: Iterable[int]) -> float:
        """Seconds for which nothing was done, up to now. To be called about once a second; looks twelve times in
        LIMIT_S."""
        now, every = monotonic(), LIMIT_S / 12
        if now - self._looked < every:
            return self._still_s
        elapsed, self._looked = min(now - self._looked, 2 * every), now
        mark = {pid: _all_done(pid) for pid in pids}
        if mark.keys() != self._mark.keys() or any(_alive(self._mark[pid], mark[pid]) for pid in mark):
            self._mark, self._still_s = mark, 0.0
        else:
            self._still_s += elapsed
        return self._still_s


def _alive(before: Done, now: Done) -> bool:
    return abs(now.cpu_s - before.cpu_s) > CPU_S or abs(now.moved_bytes - before.moved_bytes) > MOVED_BYTES


def _all_done(pid: int) -> Done:
    """What a process and all below it have done, together."""
    every = [done(process) for process in (pid, *descendants(pid))]
    return Done(
        sum(process_done.cpu_s for process_done in every), sum(process_done.moved_bytes for process_done in every)
    )
