"""Killing a process at a random moment of a chosen phase, by the kernel's timer; and the parts that tell the phases.

The timer's signal has its default action, which ends the process wherever it is, as SIGKILL does: no Python code runs
any more, locks stay locked, memory stays half written.
"""

import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.rules.update_rules import Bounded, Sync, View
from scalebook.training.engine.store.shard import Shard

SIGNAL: Final = signal.SIGALRM


class Phase(StrEnum):
    JOINING = "joining"
    COMPUTING = "computing"
    PUSHING = "pushing"
    APPLYING = "applying"
    WAITING = "waiting"
    ENDING = "ending"


class Moment:
    """The moment at which this process is to die: in the `nth` time of a phase, after the part `part` of it (0..1)."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._nth, self._part, self._count = 0, 0.0, 0
        self._seconds: list[float] = [0.002]  # how long the phase has taken, for the choice of the moment in it
        self._tell: Callable[[float], None] = lambda at: None

    def aim(self, phase: Phase, nth: int, part: float, tell: Callable[[float], None]) -> None:
        """Choose it; `tell` gets the time of death (time.monotonic) when that is known. Only in the process to die."""
        signal.signal(SIGNAL, signal.SIG_DFL)
        self._phase, self._nth, self._part, self._tell = phase, nth, part, tell

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """The block is that phase."""
        self.enter(phase)
        began = time.monotonic()
        yield
        if phase is self._phase:
            self._seconds.append(time.monotonic() - began)

    def enter(self, phase: Phase) -> None:
        """The phase begins now, and its end will not be told."""
        if phase is not self._phase:
            return
        self._count += 1
        if self._count == self._nth:
            delay = max(1e-6, self._part * statistics.median(self._seconds[-5:]))
            self._tell(time.monotonic() + delay)
            signal.setitimer(signal.ITIMER_REAL, delay)


HERE: Final = Moment()
"""This process's; a fork has its own."""


class Stepwise(Optimizer):
    """SGD with momentum 0.5 that can take its time: `pause_s` before and after each parameter's half of an update.

    Whoever dies in a step leaves some parameters and some momenta new, others old.
    """

    def __init__(self, params: Any, pause_s: float = 0.0) -> None:
        super().__init__(params, {"lr": 1.0, "pause_s": pause_s})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        with HERE.during(Phase.APPLYING):
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(group, parameter)
        if group["pause_s"] < 0:  # a server between two updates
            HERE.enter(Phase.WAITING)

    def _update(self, group: dict[str, Any], parameter: Parameter) -> None:
        state, pause_s = self.state[parameter], max(0.0, group["pause_s"])
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        time.sleep(pause_s)
        state["momentum"].mul_(0.5).add_(parameter.grad)
        time.sleep(pause_s)
        parameter.sub_(state["momentum"], alpha=group["lr"])
        time.sleep(pause_s)


def watch_applying(pause_s: float) -> None:
    """From here on, in this process: each update of a shard is that phase, where the optimizer is none of ours.

    A `pause_s` below 0: and what follows is a server's waiting.
    """
    plain = Shard.apply

    def apply(self: Shard, *args: Any, **options: Any) -> bool:
        with HERE.during(Phase.APPLYING):
            made = plain(self, *args, **options)
        if pause_s < 0:
            HERE.enter(Phase.WAITING)
        return made

    Shard.apply = apply  # type: ignore[method-assign]


class WatchedBounded(Bounded):
    """Tells when a worker has to wait."""

    def may_begin(self, worker: int, view: View) -> bool:
        return _seen(super().may_begin(worker, view))


class WatchedSync(Sync):
    """Tells when a worker has to wait."""

    def may_begin(self, worker: int, view: View) -> bool:
        return _seen(super().may_begin(worker, view))


def _seen(may: bool) -> bool:
    if not may:
        HERE.enter(Phase.WAITING)
    return may
