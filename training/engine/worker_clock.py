"""How a worker waits, and the time that measures use.

Whatever a worker does that may wait is written as a coroutine of waits (`Waits`): a generator that yields a `Wait` at
each such place (an `Until` where something travels on a simulated clock) and returns the result. `Clock.play` runs it:
over real time it sleeps; a scheduler with many workers in one process calls `next` on the coroutine of each, and
continues those whose `Wait` is ready, in its own order and at its own time. At a wait a worker holds no lock under the
host `inline`, so none of them can block another.
"""

from collections.abc import Callable, Generator
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar


class Wait(NamedTuple):
    """Wait until `ready()`. Whoever runs the coroutine may ask that at any time and any number of times; it may also do
    useful work (admit workers, apply a complete round).

    TimeoutError with `awaited()` when nothing happens in the run for `deadline_s` (real seconds).
    """

    ready: Callable[[], bool]
    deadline_s: float
    awaited: Callable[[], str]


class Until(NamedTuple):
    """Go on at this time of a simulated clock. With `later`, ask it then, and go on when it names no later time. It may
    queue for links, and changes nothing else."""

    at_s: float
    later: Callable[[], float] | None = None


T = TypeVar("T")
Waits = Generator[Wait | Until, None, T]


class Clock(Protocol):
    """The clock of one run, the same for all workers in a process."""

    def now(self) -> float:
        """Seconds; only differences mean something."""

    def play(self, waits: Waits[T]) -> T:
        """Run the coroutine of one call, waiting as it asks; returns its result, or raises its error."""

    def travelling(self, workers: int) -> int:
        """Maximum number of gradients of so many workers that exist at once."""

    def sends(self, worker: int, nbytes: int) -> Waits[None]:
        """So many bytes of a push leave `worker`; returns when all servers have received them."""

    def receives(self, worker: int, nbytes: int) -> Waits[None]:
        """So many bytes of parameters leave the servers; returns when `worker` has received them."""

    def travels(self, sender: int, receiver: int, nbytes: int, messages: int = 1) -> float:
        """So many bytes leave a peer for another now, in so many messages one after the other; returns when they will
        have arrived."""

    def arrives(self, at_s: float) -> Waits[None]:
        """Returns at this time; at once if it is over, and on a real clock."""


class RealClock:
    """For workers that are processes. `sleep`: waits until `Wait.ready`, as `Event.wait` does."""

    def __init__(self, sleep: Callable[[Callable[[], bool], float, Callable[[], str]], None]) -> None:
        self._sleep = sleep
        self.now = monotonic

    def play(self, waits: Waits[T]) -> T:
        try:
            while True:
                try:
                    wait = next(waits)
                except StopIteration as end:
                    result: T = end.value
                    return result
                assert isinstance(wait, Wait), "real time passes by itself"
                self._sleep(*wait)
        finally:
            waits.close()  # a wait in vain gives back the locks at once, whoever keeps the traceback

    def travelling(self, workers: int) -> int:
        return workers

    def sends(self, worker: int, nbytes: int) -> Waits[None]:
        """No-op: real transfers take their own time."""
        yield from ()

    def receives(self, worker: int, nbytes: int) -> Waits[None]:
        """No-op, as `sends`."""
        yield from ()

    def travels(self, sender: int, receiver: int, nbytes: int, messages: int = 1) -> float:
        """Now: whoever reads shared memory takes its own time."""
        return self.now()

    def arrives(self, at_s: float) -> Waits[None]:
        """No-op, as `sends`."""
        yield from ()
