"""A shard in shared memory without a process of its own: whoever pushes applies, under the shard's lock."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from training.ps.region import COMMUNICATE, REFUSED, ROW, TORN, UPDATES, WAIT, Control
from training.ps.rules import Arrival, Rule, Verdict
from training.ps.shard import Shard, Snapshot


class Pushed(NamedTuple):
    """What became of a push: the version the worker holds now, whether its gradient was applied, whether to go on."""

    version: int
    applied: bool
    staleness: int
    is_last: bool


class ShardTorn(RuntimeError):
    """A worker died while it applied an update: the parameters may be neither before nor after it."""


class InlineHost:
    """One worker's door to a shard in shared memory. Times and counts go to the worker's own row of `control`."""

    def __init__(self, shard: Shard, control: Control, worker: int, rule: Rule, deadline_s: float) -> None:
        self._shard, self._control, self._rule, self._worker = shard, control, rule, worker
        self._deadline_s = deadline_s
        self._row = worker * ROW
        self._bins = control.bins

    def push(
        self,
        gradients: Sequence[Tensor | None],
        groups: Sequence[Mapping[str, Any]],
        base_version: int,
        into: Tensor,
    ) -> Pushed:
        """Hand in a gradient and take the parameters that follow it, in one hold of the lock.

        `into` (uint8 [bytes of the parameters], this worker's) receives them. The lock is held for one optimizer step
        and one memory copy.
        """
        asked = time.perf_counter()
        with self._locked():
            entered = time.perf_counter()
            arrival = Arrival(self._worker, base_version, self._shard.version)
            applied = self._rule.decide(arrival) is Verdict.APPLY
            if applied:
                self._shard.apply(gradients, groups)
                self._count(arrival.staleness)
            into.copy_(self._shard.flat)
            version = self._shard.version
        self._shard.release()
        if not applied:
            self._control.words[self._row + REFUSED] += 1
        seconds = self._control.seconds
        seconds[self._row + WAIT] += entered - asked
        seconds[self._row + COMMUNICATE] += time.perf_counter() - entered
        return Pushed(version, applied, arrival.staleness, self._rule.is_last(version))

    def pull(self, into: Tensor) -> int:
        """Take the newest parameters; returns their version."""
        with self._locked():
            into.copy_(self._shard.flat)
            return self._shard.version

    def snapshot(self) -> Snapshot:
        """Parameters, optimizer state and version of one moment."""
        with self._locked():
            return self._shard.snapshot()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._control.lock.acquire(self._deadline_s):
            self._control.head[TORN] = 1
        try:
            if self._control.head[TORN]:
                raise ShardTorn("a worker died while it applied an update, so the parameters cannot be trusted")
            yield
        finally:
            self._control.lock.release()

    def _count(self, staleness: int) -> None:
        self._control.words[self._row + UPDATES] += 1
        self._control.histogram[self._worker * self._bins + min(staleness, self._bins - 1)] += 1
