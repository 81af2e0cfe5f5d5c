"""Which batches a worker's loader has taken, delivered and finished."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from scalebook.training.engine.rules import Deal
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.data.epoch_order import EpochOrder, Indices


class BatchQueue:
    """The index sampler of the inner loader: yields one epoch's batches as they are taken."""

    def __init__(self, cursor: worker_end.DataCursor, worker: int, deal: Deal, order: EpochOrder) -> None:
        self._cursor, self._worker, self._deal, self._order = cursor, worker, deal, order
        self.plans: dict[
            int, list[worker_end.TakenBatch]
        ] = {}  # of epochs that a checkpoint has found begun: what was left
        self._held: worker_end.TakenBatch | None = None
        self._given: deque[worker_end.TakenBatch] = deque()  # to the loader inside, which has not delivered them
        self._taken = self._delivered = self._finished = 0  # batches so far, one after the other
        self._epoch = -1

    def enter(self, epoch: int, batches: int) -> bool:
        """Start an epoch; unused batches of the last one count as done. False: not yet, since this worker has nothing
        in it, and those that have are not there yet."""
        self.finish_all()
        self._held, self._epoch = None, epoch
        self._given.clear()
        return self._cursor.enter_epoch(self._worker, epoch, batches, self._deal)

    def succeed(self, before: "BatchQueue") -> None:
        """Take over the batches of an earlier loader."""
        self.plans = before.plans

    def finish(self) -> None:
        """Mark every batch delivered so far as done."""
        if self._delivered > self._finished:
            self._cursor.mark_done(self._worker, self._delivered - self._finished)
            self._finished = self._delivered

    def finish_all(self) -> None:
        """Mark every batch taken so far as done, also those of an epoch that was left."""
        self._delivered = self._taken
        self.finish()

    def peek(self) -> bool:
        """Whether there is a next batch; if so, take it."""
        if self._held is None:
            self._held = self._cursor.take_batch(self._worker)
            self._taken += self._held is not None
        return self._held is not None

    def __iter__(self) -> Iterator[Indices]:
        while self.peek():
            assert self._held is not None
            taken, self._held = self._held, None
            self._given.append(taken)
            origin = self.plans[taken.epoch][taken.batch] if taken.epoch in self.plans else taken
            yield self._order(origin.epoch)[origin.batch]

    def deliver(self) -> tuple[int, bool]:
        """Note that the inner loader has delivered a batch. Returns its number (-1 for an earlier epoch), and whether
        it is this worker's last."""
        taken = self._given.popleft()
        self._delivered += 1
        return taken.batch if taken.epoch == self._epoch else -1, not self._given and not self.peek()

    def unfinished(self) -> dict[int, list[list[int]]]:
        """The unfinished batches of each epoch, as ranges [epoch, start, stop) in the data set's own epochs."""
        return origins_left(self._cursor.state(), self.plans)


def origins_left(
    state: Mapping[int, Sequence[tuple[int, int]]], plans: Mapping[int, Sequence[worker_end.TakenBatch]]
) -> dict[int, list[list[int]]]:
    """By epoch, the cursor's unfinished batches as ranges [epoch, start, stop) in the data set's own epochs."""

    def origins(epoch: int, start: int, stop: int) -> list[list[int]]:
        if epoch not in plans:
            return [[epoch, start, stop]]
        return [[origin.epoch, origin.batch, origin.batch + 1] for origin in plans[epoch][start:stop]]

    return {epoch: [part for r in ranges for part in origins(epoch, *r)] for epoch, ranges in state.items()}


NO_LIMIT: Final = -1


class SimulatedWork:
    """The `Work` of all workers: passed on to the present loader, which may change in every epoch."""

    queue: "SimulatedBatchQueue | None" = None

    def take_batch(self, worker: int) -> bool:
        return self.queue is not None and self.queue.take_batch(worker)

    def mark_pushed(self, worker: int) -> None:
        if self.queue is not None:
            self.queue.mark_pushed(worker)

    def may_come_back(self, worker: int) -> bool:
        return self.queue is not None and self.queue.may_come_back(worker)

    def lost(self, worker: int) -> None:
        if self.queue is not None:
            self.queue.lost(worker)

    def returns(self, worker: int) -> None:
        if self.queue is not None:
            self.queue.returns(worker)


class SimulatedBatchQueue:
    """Takes the place of `BatchQueue` for simulated workers, and is their `Work`.

    A worker takes a batch when it begins a gradient, and enters its next epoch when nothing is left of this one, as
    real workers do; the batch is loaded when the gradient is due. So the loop's epoch ends after as many gradients as
    an epoch has batches, some of which may be of the next epoch.

    Args:
        meets: No worker begins an epoch before the others have ended the last one.
        turn: Returns the worker whose gradient is due next; None when none computes any more.
        batches_in: Returns the batches of an epoch, or what a checkpoint has left of it.
        epochs: How many epochs the run has; NO_LIMIT: as many as it takes.
        is_over: Whether no worker shall take another batch.
    """

    def __init__(
        self,
        cursor: worker_end.DataCursor,
        deal: Deal,
        meets: bool,
        order: EpochOrder,
        turn: Callable[[], int | None],
        batches_in: Callable[[int], int],
        epochs: Callable[[], int],
        is_over: Callable[[], bool],
    ) -> None:
        self._cursor, self._deal, self._meets, self._order, self._turn = cursor, deal, meets, order, turn
        self._batches_in, self._epochs, self._is_over = batches_in, epochs, is_over
        self.plans: dict[int, list[worker_end.TakenBatch]] = {}
        self._taken: dict[int, worker_end.TakenBatch] = {}  # by worker, what it computes on
        self._epoch_of: dict[int, int] = {}  # by worker, its own
        self._in_vain: set[int] = set()  # who found nothing left of its epoch: only a death brings something back
        self._epoch, self._batches, self._delivered = 0, 0, 0  # of the loop
        self._has_ended = False

    def succeed(self, before: "SimulatedBatchQueue") -> None:
        """Take over from an earlier loader: workers go on where they are."""
        self.plans, self._taken, self._epoch_of = before.plans, before._taken, before._epoch_of

    # --- what the workers ask --------------------------------------------------------------------------------------

    def take_batch(self, worker: int) -> bool:
        """See `Work`."""
        while not self._is_over():
            if worker in self._epoch_of and worker not in self._in_vain:
                taken = self._cursor.take_batch(worker)
                if taken is not None:
                    self._taken[worker] = taken
                    return True
                self._in_vain.add(worker)
            following = self._epoch_of.get(worker, self._epoch - 1) + 1
            if following >= self._epochs() != NO_LIMIT or not (batches := self._batches_in(following)):
                return False
            is_first = following > max(self._epoch_of.values(), default=-1)
            if self._meets and is_first and (self._taken or self._cursor.outstanding()):
                return False
            if not self._cursor.enter_epoch(worker, following, batches, self._deal):
                return False
            self._epoch_of[worker] = following
            self._in_vain.discard(worker)
        return False

    def mark_pushed(self, worker: int) -> None:
        """See `Work`."""
        self._cursor.mark_done(worker)
        self._taken.pop(worker, None)

    def may_come_back(self, worker: int) -> bool:
        """See `Work`."""
        if self._is_over():
            return False
        return any(other != worker for other in self._taken) or self._cursor.outstanding({worker}) > 0

    def lost(self, worker: int) -> None:
        """See `Work`."""
        self._taken.pop(worker, None)
        self._in_vain.clear()
        self._cursor.mark_dead(worker)

    def returns(self, worker: int) -> None:
        """See `Work`. The worker starts in the loop's epoch."""
        self._epoch_of.pop(worker, None)
        self._in_vain.clear()
        self._cursor.rejoin(worker)

    # --- what the loader asks --------------------------------------------------------------------------------------

    def enter(self, epoch: int, batches: int) -> bool:
        """Start the loop's epoch, of so many batches. Always True."""
        self._epoch, self._batches, self._delivered = epoch, batches, 0
        return True

    def peek(self) -> bool:
        """Whether the loop's epoch has another batch."""
        return self._delivered < self._batches and not self._has_ended

    def __iter__(self) -> Iterator[Indices]:
        while self.peek():
            worker = self._turn()
            if worker is None:
                self._has_ended = True
                return
            taken = self._taken[worker]
            origin = self.plans[taken.epoch][taken.batch] if taken.epoch in self.plans else taken
            yield self._order(origin.epoch)[origin.batch]

    def deliver(self) -> tuple[int, bool]:
        """Note that a batch is delivered: its number in the loop's epoch, and whether it is the last."""
        self._delivered += 1
        return self._delivered - 1, not self.peek()

    def finish(self) -> None:
        """Do nothing: a batch is done when its gradient has been pushed."""

    def finish_all(self) -> None:
        """Do nothing, like `finish`."""

    def unfinished(self) -> dict[int, list[list[int]]]:
        """By epoch, the unfinished batches as ranges [epoch, start, stop) in the data set's own epochs."""
        return origins_left(self._cursor.state(), self.plans)
