"""All that a worker on another machine may ask its stand-in."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from torch.optim import Optimizer

from scalebook.training.ps.channel.asked import MOST, Offer, ReadCall, numbers, read
from scalebook.training.ps.channel.engine_calls import EngineCalls
from scalebook.training.ps.channel.lane import OFFERED
from scalebook.training.ps.channel.side_calls import SideCalls
from scalebook.training.ps.channel.wire import ProtocolError
from scalebook.training.ps.coordination.run import SharedRun
from scalebook.training.ps.memory.region import COMMUNICATE, COMPUTE, DATA, MEMORY, ROW, SAMPLES
from scalebook.training.ps.worker.shared_end import SharedEnd

_NOTED: Final = (COMPUTE, DATA, COMMUNICATE)


class Calls:
    """What worker `end.worker` may ask. `optimizers`: the same as the worker's, with parameters of this process.

    Whoever asks has the run's key. What it asks is still read strictly, and done in its own name alone.
    """

    def __init__(self, end: SharedEnd, run: SharedRun, optimizers: Sequence[Optimizer]) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        """Says something to the worker while it waits; set by who serves it."""
        self._control, self._worker = run.control, end.worker
        self._engine = EngineCalls(end, run, optimizers, self._tell)
        self._offers = {**self._engine.offers(), **SideCalls(end, self._tell).offers()}
        self.lane = LaneCalls(self, {name: self._offers[name] for name in OFFERED})
        self._before = [self._control.seconds[self._worker * ROW + at] for at in _NOTED]
        self._samples = self._control.counter(self._worker, SAMPLES)

    def _tell(self, *plain: Any) -> None:
        self.tell(*plain)

    @property
    def has_detached(self) -> bool:
        """Whether the worker has said that it trains no more: then it may go."""
        return self._engine.has_detached

    def asked(self, text: bytes) -> ReadCall:
        """A call, read. What the worker notes of itself goes along: its seconds, samples and memory so far, in this
        life."""
        asked = read(text, self._offers)
        if asked.notes is not None:
            *seconds, samples, memory = numbers(asked.notes, (int, float), len(_NOTED) + 2)
            counts = (samples, memory)
            if not all(map(math.isfinite, seconds)) or any(type(n) is not int or not 0 <= n < MOST for n in counts):
                raise ProtocolError("channel: no seconds, samples and memory")
            for at, before, spent in zip(_NOTED, self._before, seconds, strict=True):
                self._control.seconds[self._worker * ROW + at] = before + spent
            self._control.set_counter(self._worker, SAMPLES, self._samples + int(samples))
            self._control.seconds[self._worker * ROW + MEMORY] = memory
        return asked


class LaneCalls:
    """What it may ask over its second connection, while it waits for nothing else."""

    def __init__(self, calls: Calls, offers: Mapping[str, Offer]) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        self._calls, self._offers = calls, offers

    @property
    def has_detached(self) -> bool:
        """As `Calls`."""
        return self._calls.has_detached

    def asked(self, text: bytes) -> ReadCall:
        """A call, read."""
        return read(text, self._offers)


def most_text(workers: int) -> int:
    """Bytes of a text at most, of any frame of a run: figures of all workers, and hyper-parameters."""
    return 65_536 + 16_384 * workers
