"""What a worker shares with the others beside parameters: parts of its end (`end.py`, which has what holds for all)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from scalebook.training.engine.coordination.worker_messages import Phase, PlateauStep
from scalebook.training.engine.worker.cursor import Claim


class DataCursor(Protocol):
    """Which batch of which epoch is whose: each once, and again only after a death. Short calls, which take a lock.

    `worker`: the one that asks. A claim is a promise to push the batch's gradient, kept until `mark_done`.
    """

    @property
    def workers(self) -> int: ...

    def enter_epoch(self, worker: int, epoch: int, batches: int, turns: bool) -> bool:
        """The worker enters an epoch of so many batches; with `turns` batch i belongs to worker i % workers. False: not
        yet, since it owns none of them and who does has not come there. ValueError when another worker has begun it
        with another number of batches."""

    def claim_batch(self, worker: int) -> Claim | None:
        """The next batch for this worker, of its epoch or an earlier one; None: nothing is left now."""

    def mark_done(self, worker: int, count: int = 1) -> None:
        """The gradients of its oldest `count` claims have been pushed."""

    def outstanding(self, besides: Collection[int] = ()) -> int:
        """Not 0: the death of a worker other than `besides` can bring batches back."""

    def progress(self) -> int:
        """A number that grows whenever a worker claims or pushes: what a deadline on waiting for others looks at."""

    def mark_dead(self, worker: int) -> None:
        """The worker claims no more: what it has claimed and not done, and its share, is open to all."""

    def rejoin(self, worker: int) -> None:
        """A dead worker is there again: what nobody has taken of its share meanwhile is its own."""

    def state(self) -> dict[int, list[tuple[int, int]]]:
        """What is not done: by epoch, in order, ranges [start, stop) of batches."""


class Work(Protocol):
    """What virtual workers compute on, said by whoever has the data. Nothing here blocks."""

    def claim_batch(self, worker: int) -> bool:
        """Whether there is a batch for this worker now; if so it is the worker's, who begins its gradient."""

    def mark_pushed(self, worker: int) -> None:
        """The gradient of the batch that it took is pushed."""

    def may_come_back(self, worker: int) -> bool:
        """Nothing is left now: whether somebody else's death can bring it something."""

    def lost(self, worker: int) -> None:
        """It has died: what it took, and what was set aside for it, is open to all."""

    def returns(self, worker: int) -> None:
        """It is there again."""


class RandomStream(ABC):
    """Random numbers of a process, of which each virtual worker has its own. A state is plain: numbers, texts, bytes,
    tensors, tuples of them."""

    @abstractmethod
    def seeded(self, seed: int) -> Any:
        """The state with this seed. Nothing is drawn or changed."""

    @abstractmethod
    def state(self) -> Any:
        """The state of now."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Go on from a state, after `state` has been asked if anybody may have drawn."""


class Signals(Protocol):
    """What the workers tell each other beside parameters. Nothing here blocks."""

    @property
    def stop(self) -> bool:
        """Whether every worker is to end after its present step."""

    def ask_to_stop(self) -> None:
        """Tell every worker to end after its present step."""

    def mark_begun(self) -> None:
        """Tell that all have come to the start of training."""

    def note_checkpoint(self, path: str | Path) -> None:
        """By worker 0: the newest checkpoint, so that somebody else can name it when worker 0 is dead."""

    def add_plateau_step(self, step: PlateauStep) -> None:
        """By worker 0. RuntimeError when there is no room for more."""

    def plateau_steps(self, since: int) -> list[PlateauStep]:
        """All that were added, from number `since` on."""


class MessageExchange(Protocol):
    """Where workers exchange letters; each call blocks until all that must come are there."""

    def set_phase(self, phase: Phase) -> None:
        """Say how far this worker is; who is waited for depends on it."""

    def pass_by(self, place: int) -> None:
        """Say that this worker comes to no meeting at this boundary any more, nor at an earlier one."""

    def gather_before_training(self, letter: bytes, what: str) -> dict[int, bytes]:
        """Before training: every worker's letter at this call, by worker; also for who joins late."""

    def all_gather(self, place: int, letter: bytes, what: str, meanwhile: Callable[[], None]) -> dict[int, bytes]:
        """While training: the letters of those who have come to this place, by worker, the same for all of them.

        `meanwhile` is called whenever something happens in the run.
        """

    def streams_differ(self, digest: int) -> bool:
        """Whether the workers' streams begin with different batches; `digest` (not 0) is of this worker's."""


class Rows(Protocol):
    """A row of bytes for each worker, which it writes and all read, each number whole. What `publish` was told of,
    others see once they `fetch` there. A part is of bytes [start, stop)."""

    def allocate(self, row_bytes: int) -> None:
        """By worker 0, before `join`, after which anybody maps them. Memory is taken as it is written."""

    def map(self, row_bytes: int) -> Tensor:
        """All rows, uint8 [workers, row_bytes] on the CPU, zeros at first."""

    def publish(self, parts: Sequence[tuple[int, int]]) -> None:
        """Let the others see these parts of this worker's row, the last one last."""

    def fetch(self, parts: Sequence[tuple[int, int, int]]) -> None:
        """See these parts, each of a worker's row, as they are now."""
