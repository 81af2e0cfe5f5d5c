"""The rows of sparse tables that one worker reads, as of the version that it holds: its pull of them."""

from collections.abc import Callable, Sequence

from torch import Tensor

from scalebook.training.engine.memory.region import METER, PULLED
from scalebook.training.engine.store.gradient_transfer import ROW_NUMBER
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.worker.replica import Replica


class TableReads:
    """The reads of one optimizer's tables. `bases`: returns the versions held, by shard."""

    def __init__(
        self, worker: int, partition: OptimizerPartition, replica: Replica, bases: Callable[[], Sequence[Newest]]
    ) -> None:
        self._meter, self._shards, self._replica, self._bases = (
            worker * METER + PULLED,
            partition.shards,
            replica,
            bases,
        )
        self._row_bytes = {t.place: ROW_NUMBER + t.row_bytes for s in partition.shards for t in s.plan.tables}
        self._tables = {
            t.place: (n, s.tables) for n, s in enumerate(partition.shards) if s.tables for t in s.plan.tables
        }
        self.taken = 0
        """Bytes read since the last pull; on a virtual link they travel with the next."""

    def rows(self, place: int, rows: Tensor, newest: bool = False) -> Tensor:
        """Rows (int64 [n], different, increasing) of the table at this place, as of the version held, or the `newest`:
        [n, ...]."""
        number, _ = self._tables[place]
        shard = self._shards[number]
        self.count(place, len(rows))
        return shard.read(place, rows, shard.version if newest else self._bases()[number].version)

    def unchanged(self, place: int) -> int | None:
        """A number that stays the same as long as the table in place is that of the version held; None if rows must be
        read by `rows`."""
        if place in self._replica.frozen:
            return None
        number, tables = self._tables[place]
        return tables.unchanged_since(self._bases()[number].version)

    def count(self, place: int, rows: int) -> None:
        """Count so many different rows of the table as read."""
        size = rows * self._row_bytes[place]
        self._shards[self._tables[place][0]].counters.meters[self._meter] += size
        self.taken += size
