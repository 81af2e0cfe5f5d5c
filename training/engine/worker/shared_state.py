"""What a worker shares with the others beside parameters: parts of its end (`worker_end.py` has what holds for all)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from scalebook.training.engine.coordination.worker_messages import Phase, PlateauStep
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import TakenBatch


class DataCursor(Protocol):
    """Which worker takes which batch of which epoch: each once, and again only after a death. Short calls, which take a
    lock.

    `worker`: the one that calls. Whoever takes a batch promises to push its gradient, and has the batch until
    `mark_done`.
    """

    @property
    def workers(self) -> int: ...

    def enter_epoch(self, worker: int, epoch: int, batches: int, deal: Deal) -> bool:
        """The worker enters an epoch of so many batches, some of which belong to a worker (`deal`). False: not yet,
        since they all do, it owns none, and no owner has come there. ValueError when another worker has begun it with
        another number of batches."""

    def take_batch(self, worker: int) -> TakenBatch | None:
        """The next batch for this worker, of its epoch or an earlier one; None: nothing is left now."""

    def mark_done(self, worker: int, count: int = 1) -> None:
        """The gradients of its oldest `count` batches have been pushed."""

    def outstanding(self, besides: Collection[int] = ()) -> int:
        """Batches taken but not pushed, and unfinished shares, of workers other than `besides`: if not 0, a death can
        bring batches back."""

    def progress(self) -> int:
        """A number that grows whenever a worker takes a batch or pushes; deadlines of waits for other workers use
        it."""

    def mark_dead(self, worker: int) -> None:
        """The worker takes no more: its unfinished batches and its share are open to all."""

    def rejoin(self, worker: int) -> None:
        """A dead worker is back: what nobody has taken of its share meanwhile is its own."""

    def state(self) -> dict[int, list[tuple[int, int]]]:
        """What is not done: by epoch, in order, ranges [start, stop) of batches."""


class Work(Protocol):
    """Which batches simulated workers compute on; the owner of the data implements it. Nothing here blocks."""

    def take_batch(self, worker: int) -> bool:
        """Whether there is a batch for this worker now; if so the worker has taken it and begins its gradient."""

    def mark_pushed(self, worker: int) -> None:
        """The gradient of the batch that it took has been pushed."""

    def may_come_back(self, worker: int) -> bool:
        """After nothing is left: whether another worker's death can bring it a batch."""

    def lost(self, worker: int) -> None:
        """The worker has died: what it took, and what was reserved for it, is open to all."""

    def returns(self, worker: int) -> None:
        """The worker is back."""


class RandomStream(ABC):
    """Random numbers of a process, of which each simulated worker has its own. A state is plain: numbers, texts, bytes,
    tensors, tuples of them."""

    @abstractmethod
    def of_worker(self, worker: int) -> Any:
        """The state in which this worker begins, without drawing or changing anything."""

    @abstractmethod
    def state(self) -> Any:
        """The present state."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Continue from a state. Call `state` first if a number may have been drawn since."""


class Signals(Protocol):
    """Signals between workers. Nothing here blocks."""

    @property
    def stop(self) -> bool:
        """Whether every worker is to end after its present step."""

    def ask_to_stop(self) -> None:
        """Tell every worker to end after its present step."""

    def mark_begun(self) -> None:
        """Note that all workers have come to the start of training."""

    def note_checkpoint(self, path: str | Path) -> None:
        """Called by worker 0: remember the newest checkpoint, so that others can name it when worker 0 is dead."""

    def add_plateau_step(self, step: PlateauStep) -> None:
        """Called by worker 0. RuntimeError when there is no room for more."""

    def plateau_steps(self, since: int) -> list[PlateauStep]:
        """All steps from number `since` on."""


class MessageExchange(Protocol):
    """Lets workers exchange messages; each call blocks until all that must come are there."""

    def set_phase(self, phase: Phase) -> None:
        """Set how far this worker is; this decides who is waited for."""

    def pass_by(self, place: int) -> None:
        """Say that this worker makes no more calls at this boundary or an earlier one."""

    def gather_before_training(self, message: bytes, what: str) -> dict[int, bytes]:
        """Before training: every worker's message at this call, by worker; also for a late worker."""

    def all_gather(self, place: int, message: bytes, what: str, meanwhile: Callable[[], None]) -> dict[int, bytes]:
        """During training: the messages of the workers that have come to this place, by worker, the same for all of
        them.

        `meanwhile` is called whenever something happens in the run.
        """

    def streams_differ(self, digest: int) -> bool:
        """Whether the workers' data begin with different batches; `digest` (not 0) is of this worker's."""


class Rows(Protocol):
    """A row of bytes for each worker, which that worker writes and all read, each number atomically. What a worker
    passes to `publish`, others see after `fetch`. A part is bytes [start, stop)."""

    def allocate(self, row_bytes: int) -> None:
        """Called by worker 0 before `join`; the others call `map` after it. Memory is taken as it is written."""

    def map(self, row_bytes: int) -> Tensor:
        """All rows, uint8 [workers, row_bytes] on the CPU, zeros at first."""

    def publish(self, parts: Sequence[tuple[int, int]]) -> None:
        """Publish these parts of this worker's row, the last one last."""

    def fetch(self, parts: Sequence[tuple[int, int, int]]) -> None:
        """Fetch these parts, each of a worker's row, as they are now."""
