"""Which batches virtual workers take, and in which order their gradients are due: the loader of a run that one process
plays."""

from collections.abc import Callable, Iterator
from typing import Final

from scalebook.training.ps.worker.end import Claim, DataCursor
from scalebook.training.strategies.claims import origins_left
from scalebook.training.strategies.epoch_order import EpochOrder, Indices

NO_LIMIT: Final = -1


class PlayedWork:
    """The `Work` of all workers: that of the loader that there is, which may be another one in every epoch."""

    claims: "PlayedClaims | None" = None

    def take(self, worker: int) -> bool:
        return self.claims is not None and self.claims.take(worker)

    def done(self, worker: int) -> None:
        if self.claims is not None:
            self.claims.done(worker)

    def may_come_back(self, worker: int) -> bool:
        return self.claims is not None and self.claims.may_come_back(worker)

    def lost(self, worker: int) -> None:
        if self.claims is not None:
            self.claims.lost(worker)

    def returns(self, worker: int) -> None:
        if self.claims is not None:
            self.claims.returns(worker)


class PlayedClaims:
    """Stands where `Claims` does, and answers as their `Work`.

    A worker claims when it begins a gradient, and goes on into its own next epoch when nothing is left of this one, as
    real ones do; its batch is loaded when the gradient is due. So the loop's epoch is over when as many gradients have
    been computed as an epoch has batches, some of which may be of the next.

    Args:
        meets: Nobody begins an epoch before the others have ended the one before.
        turn: Whose gradient is due next; None when nobody will compute any more.
        batches_in: Batches of an epoch, what a checkpoint has left of it where there is one.
        epochs: How many epochs the run has; NO_LIMIT: as many as it takes.
        is_over: Whether nobody is to take another batch.
    """

    def __init__(
        self,
        cursor: DataCursor,
        turns: bool,
        meets: bool,
        order: EpochOrder,
        turn: Callable[[], int | None],
        batches_in: Callable[[int], int],
        epochs: Callable[[], int],
        is_over: Callable[[], bool],
    ) -> None:
        self._cursor, self._turns, self._meets, self._order, self._turn = cursor, turns, meets, order, turn
        self._batches_in, self._epochs, self._is_over = batches_in, epochs, is_over
        self.plans: dict[int, list[Claim]] = {}
        self._taken: dict[int, Claim] = {}  # by worker, what it computes on
        self._epoch_of: dict[int, int] = {}  # by worker, its own
        self._in_vain: set[int] = set()  # who found nothing left of its epoch: only a death brings something back
        self._epoch, self._batches, self._delivered = 0, 0, 0  # of the loop
        self._has_ended = False

    def succeed(self, before: "PlayedClaims") -> None:
        """Take the place of those of an earlier loader: workers go on where they are."""
        self.plans, self._taken, self._epoch_of = before.plans, before._taken, before._epoch_of

    # --- what the workers ask --------------------------------------------------------------------------------------

    def take(self, worker: int) -> bool:
        """See `Work`."""
        while not self._is_over():
            if worker in self._epoch_of and worker not in self._in_vain:
                claim = self._cursor.claim(worker)
                if claim is not None:
                    self._taken[worker] = claim
                    return True
                self._in_vain.add(worker)
            following = self._epoch_of.get(worker, self._epoch - 1) + 1
            if following >= self._epochs() != NO_LIMIT or not (batches := self._batches_in(following)):
                return False
            is_first = following > max(self._epoch_of.values(), default=-1)
            if self._meets and is_first and (self._taken or self._cursor.outstanding()):
                return False
            if not self._cursor.begin(worker, following, batches, self._turns):
                return False
            self._epoch_of[worker] = following
            self._in_vain.discard(worker)
        return False

    def done(self, worker: int) -> None:
        """See `Work`."""
        self._cursor.done(worker)
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
        """See `Work`. It begins where the loop is."""
        self._epoch_of.pop(worker, None)
        self._in_vain.clear()
        self._cursor.rejoin(worker)

    # --- what the loader asks --------------------------------------------------------------------------------------

    def enter(self, epoch: int, batches: int) -> bool:
        """The loop begins an epoch of so many batches. True: it has all of them."""
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
            claim = self._taken[worker]
            origin = self.plans[claim.epoch][claim.batch] if claim.epoch in self.plans else claim
            yield self._order(origin.epoch)[origin.batch]

    def deliver(self) -> tuple[int, bool]:
        """A batch is there: its number in the loop's epoch, and whether it is the last of it."""
        self._delivered += 1
        return self._delivered - 1, not self.peek()

    def finish(self) -> None:
        """Nothing: a batch is done when its gradient has been pushed."""

    def finish_all(self) -> None:
        """Nothing, as above."""

    def unfinished(self) -> dict[int, list[list[int]]]:
        """By epoch, what is not done in it now: [epoch, start, stop], in terms of the data's own epochs."""
        return origins_left(self._cursor.state(), self.plans)
