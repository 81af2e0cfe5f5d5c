"""Which batches a worker's loader has claimed, delivered and done."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from scalebook.training.ps.worker.end import Claim, DataCursor
from scalebook.training.strategies.epoch_order import EpochOrder, Indices


class Claims:
    """The index sampler of the loader inside: one epoch's claims, as they are made."""

    def __init__(self, cursor: DataCursor, worker: int, turns: bool, order: EpochOrder) -> None:
        self._cursor, self._worker, self._turns, self._order = cursor, worker, turns, order
        self.plans: dict[int, list[Claim]] = {}  # of epochs that a checkpoint has found begun: what was left
        self._held: Claim | None = None
        self._given: deque[Claim] = deque()  # to the loader inside, which has not delivered them
        self._claimed = self._delivered = self._finished = 0  # batches so far, one after the other
        self._epoch = -1

    def enter(self, epoch: int, batches: int) -> bool:
        """Begin an epoch. What was claimed in the one before and never used counts as done. False: not yet, since
        nothing of it is this worker's, and those that have something are not there."""
        self.finish_all()
        self._held, self._epoch = None, epoch
        self._given.clear()
        return self._cursor.begin(self._worker, epoch, batches, self._turns)

    def succeed(self, before: "Claims") -> None:
        """Take the place of those of an earlier loader."""
        self.plans = before.plans

    def finish(self) -> None:
        """Every batch delivered so far is done."""
        if self._delivered > self._finished:
            self._cursor.done(self._worker, self._delivered - self._finished)
            self._finished = self._delivered

    def finish_all(self) -> None:
        """Every batch claimed so far is done, or its epoch was left."""
        self._delivered = self._claimed
        self.finish()

    def peek(self) -> bool:
        """Whether there is a next batch; if so it is claimed."""
        if self._held is None:
            self._held = self._cursor.claim(self._worker)
            self._claimed += self._held is not None
        return self._held is not None

    def __iter__(self) -> Iterator[Indices]:
        while self.peek():
            assert self._held is not None
            claim, self._held = self._held, None
            self._given.append(claim)
            origin = self.plans[claim.epoch][claim.batch] if claim.epoch in self.plans else claim
            yield self._order(origin.epoch)[origin.batch]

    def deliver(self) -> tuple[int, bool]:
        """Note that the inner loader has made a batch. Its number (-1 if of an earlier epoch), and whether it is this
        worker's last."""
        claim = self._given.popleft()
        self._delivered += 1
        return claim.batch if claim.epoch == self._epoch else -1, not self._given and not self.peek()

    def unfinished(self) -> dict[int, list[list[int]]]:
        """The batches of each epoch that are not done, as ranges [epoch, start, stop) of the epochs that the data set
        counts."""
        return origins_left(self._cursor.state(), self.plans)


def origins_left(
    state: Mapping[int, Sequence[tuple[int, int]]], plans: Mapping[int, Sequence[Claim]]
) -> dict[int, list[list[int]]]:
    """What the cursor says is not done, in terms of the data's own epochs: by epoch, [epoch, start, stop]."""

    def origins(epoch: int, start: int, stop: int) -> list[list[int]]:
        if epoch not in plans:
            return [[epoch, start, stop]]
        return [[origin.epoch, origin.batch, origin.batch + 1] for origin in plans[epoch][start:stop]]

    return {epoch: [part for r in ranges for part in origins(epoch, *r)] for epoch, ranges in state.items()}
