"""Who has come, who has finished; every wait has a deadline. Death is noticed by whoever made the processes."""

from collections.abc import Callable

from scalebook.training.ps.clock import Steps, Wait
from scalebook.training.ps.memory.region import ARRIVALS, STARTED, Control


class Membership:
    """One worker's part in the group. Each counter it writes is its own, so nothing here needs a lock."""

    def __init__(self, control: Control, worker: int, deadline_s: float) -> None:
        self._control, self.worker, self.deadline_s = control, worker, deadline_s

    @property
    def joins_late(self) -> bool:
        """Whether training was under way when this worker came: it was started again."""
        return bool(self._control.head[STARTED])

    def rendezvous(self, name: str) -> Steps[None]:
        """Wait until every living worker has come to as many rendezvous as this one; TimeoutError names who is missing.

        For the time before training only: a worker that computes waits for nobody.
        """
        mine = self._control.counter(self.worker, ARRIVALS) + 1
        self._control.set_counter(self.worker, ARRIVALS, mine)
        self._control.event.wake()
        yield self._wait(lambda: self._late(mine), f"rendezvous {name!r}: workers {{}} did not come")

    def wait_for_others(self) -> Steps[None]:
        """Wait until all other living workers have finished; TimeoutError when nothing happens for the deadline.

        Through `Joined`, which also waits until all is applied that they pushed.
        """
        yield self._wait(self._running, "workers {} neither pushed nor finished")

    def _late(self, mine: int) -> list[int]:
        return [w for w in self._control.living() if self._control.counter(w, ARRIVALS) < mine]

    def _running(self) -> list[int]:
        return [w for w in self._control.training() if w != self.worker]

    def _wait(self, missing: Callable[[], list[int]], message: str) -> Wait:
        def what() -> str:
            return f"worker {self.worker} waited in vain, {message.format(missing())}"

        return Wait(lambda: not missing(), self.deadline_s, what)
