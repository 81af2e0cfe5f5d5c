"""A device that is none: its memory lies on the host, its copies end late, in parts, out of order, at random."""

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.engine.memory.device import Device, Registered

NAN = 0xFF
"""Bytes of which all floating-point numbers are NaN."""


@dataclass(eq=False)
class Part:
    """Of copy number `number`; `content`: of its source when the copy was begun."""

    number: int
    target: Tensor
    source: Tensor
    content: Tensor

    def make(self) -> None:
        assert torch.equal(self.source, self.content), "written to while it was copied"
        self.target.copy_(self.source)


class LateDevice(Device):
    """Whatever the contract of a device lets a copy do, one does here: its target is NaN until it is made, its source
    is read as late as somebody waits, in two parts, and parts of all copies are made in any order.

    What is computed begins when the copies before it are over, and is as late. `dies_at`: the call at which the process
    is killed. Not `is_eager`: nothing is made before somebody waits for it.
    """

    def __init__(self, seed: int, dies_at: int | None = None, is_eager: bool = True) -> None:
        self._random, self._dies_at, self._is_eager = random.Random(seed), dies_at, is_eager
        self._parts: list[Part] = []
        self._computed: list[tuple[int, Callable[[], None]]] = []  # before which copy
        self._copies = self._calls = 0
        self.down = self.up = 0
        """Bytes that were copied from the device, and copies that were begun to it."""
        self.registered: list[tuple[int, int]] = []  # addresses from, to

    @property
    def under_way(self) -> int:
        """Parts of copies that have not come."""
        return len(self._parts)

    @override
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        self.up += 1
        self._begin(target, source, source)

    @override
    def copy_down(self, target: Tensor, source: Tensor) -> None:
        self.down += target.numel()
        self._begin(target, source, target)

    @override
    def record(self) -> int:
        self._called()
        return self._copies

    @override
    def wait(self, mark: int) -> None:
        self._called()
        self._catch_up(mark)

    @override
    def stamp(self) -> int:
        return self.record()

    @override
    def seconds(self, begin: int, end: int) -> float | None:
        """None: it has no clock."""
        return None

    @override
    def register(self, memory: Tensor) -> Registered:
        self.registered.append((memory.data_ptr(), memory.data_ptr() + memory.numel()))
        return Registered()

    def compute(self, what: Callable[[], None]) -> None:
        """Put it into the queue; the caller goes on."""
        self._computed.append((self._copies, what))
        self._called()

    def synchronise(self) -> None:
        """All that was begun is over."""
        self._catch_up(self._copies)

    def _begin(self, target: Tensor, source: Tensor, on_host: Tensor) -> None:
        start, end = on_host.data_ptr(), on_host.data_ptr() + on_host.numel()
        assert any(a <= start and end <= b for a, b in self.registered), "memory that is not registered"
        for part in self._parts:
            assert not _overlap(target, part.target), "two copies to one place"
            assert not _overlap(target, part.source), "a copy to where another is from"
            assert not _overlap(source, part.target), "a copy of what has not come yet"
        target.fill_(NAN)
        cut, size = self._random.randrange(target.numel() + 1), target.numel()
        for a, b in ((0, cut), (cut, size)):
            self._parts.append(Part(self._copies, target[a:b], source[a:b], source[a:b].clone()))
        self._copies += 1
        self._called()

    def _called(self) -> None:
        self._calls += 1
        if self._calls == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._is_eager and self._random.random() < 0.3:
            self._make([part for part in self._parts if self._random.random() < 0.3])

    def _catch_up(self, mark: int) -> None:
        for before, what in [one for one in self._computed if one[0] <= mark]:
            self._make([part for part in self._parts if part.number < before])
            what()
        self._computed = [one for one in self._computed if one[0] > mark]
        self._make([part for part in self._parts if part.number < mark])

    def _make(self, parts: list[Part]) -> None:
        self._parts = [part for part in self._parts if part not in parts]
        self._random.shuffle(parts)
        for part in parts:
            part.make()


def _overlap(one: Tensor, other: Tensor) -> bool:
    a, b = one.data_ptr(), other.data_ptr()
    return one.numel() > 0 and other.numel() > 0 and a < b + other.numel() and b < a + one.numel()
