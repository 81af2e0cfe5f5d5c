"""How a worker waits, and what time it is for the measures.

Whatever a worker does that may have to wait is written as steps: a generator which yields a `Wait` at each such place
(an `Until` where something travels on a simulated clock) and returns the result. One loop takes them, `Clock.play`:
over real time it sleeps; a scheduler that has many workers in one process calls `next` on the steps of each, and goes
on with those whose `Wait` is ready, in its own order and at its own time. Between two steps a worker holds no lock
under the host `inline`, so no step can wait for another.
"""

from collections.abc import Callable, Generator
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar


class Wait(NamedTuple):
    """Go on once `ready()`, which may be asked at any time, as often as one likes, by whoever takes the steps: it may
    also do what the worker can do meanwhile (let workers in, apply a complete round).

    In vain when nothing happens in the run for `deadline_s` (real seconds): a TimeoutError that says `awaited()`.
    """

    ready: Callable[[], bool]
    deadline_s: float
    awaited: Callable[[], str]


class Until(NamedTuple):
    """Go on at this time of a simulated clock; where there is `later`, ask it then, and go on when it names no later
    time any more. It may ask for lines, and changes nothing else."""

    at_s: float
    later: Callable[[], float] | None = None


T = TypeVar("T")
Steps = Generator[Wait | Until, None, T]


class Clock(Protocol):
    """Of one run, the same for all workers in a process."""

    def now(self) -> float:
        """Seconds; only differences mean something."""

    def play(self, steps: Steps[T]) -> T:
        """Do all steps of one call, waiting as they ask; their result, or what they raise."""

    def travelling(self, workers: int) -> int:
        """How many gradients of so many workers there are at the same time, at most."""

    def sends(self, worker: int, nbytes: int) -> Steps[None]:
        """So many bytes of a push leave `worker`: return when all servers have got them and can apply them."""

    def receives(self, worker: int, nbytes: int) -> Steps[None]:
        """So many bytes of parameters leave the servers: return when `worker` has got them."""


class RealClock:
    """For workers that are processes. `sleep`: until `Wait.ready`, as `Event.wait` does."""

    def __init__(self, sleep: Callable[[Callable[[], bool], float, Callable[[], str]], None]) -> None:
        self._sleep = sleep
        self.now = monotonic

    def play(self, steps: Steps[T]) -> T:
        try:
            while True:
                try:
                    wait = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                assert isinstance(wait, Wait), "real time passes by itself"
                self._sleep(*wait)
        finally:
            steps.close()  # a wait in vain gives back the locks at once, whoever keeps the traceback

    def travelling(self, workers: int) -> int:
        return workers

    def sends(self, worker: int, nbytes: int) -> Steps[None]:
        """Nothing: what real workers hand over has taken its time."""
        yield from ()

    def receives(self, worker: int, nbytes: int) -> Steps[None]:
        """Nothing, as `sends`."""
        yield from ()
