"""The sparse tables of a replica: lent as they are now, so that they can be saved and looked at."""

from collections.abc import Sequence, Set

from torch import Tensor
from torch.nn import Parameter

from scalebook.training.ps.applying.shard import Shard
from scalebook.training.ps.applying.tables import Tables
from scalebook.training.ps.memory.lending import Lending


class LentTables:
    """Of one optimizer in one worker. A table has no versions: what somebody computes with are rows as of the version
    held (`TableReads`)."""

    def __init__(self, shards: Sequence[Shard], parameters: Sequence[Parameter], lending: Lending | None) -> None:
        self._shards, self._parameters, self._lending = shards, parameters, lending
        self._place = {
            place: (shard, i) for shard in shards if shard.plan.tables for i, place in enumerate(shard.plan.parameters)
        }
        self.places = {table.place for shard in shards for table in shard.plan.tables}
        self._seen: list[tuple[int, int]] = []

    def lent(self, place: int) -> Tensor:
        """The table at this place; what is written into it stays in this process."""
        if self._lending is None:
            return self.weight(place)
        shard, index = self._place[place]
        plan = shard.plan.tables[_tables(shard).at[index]]
        return self._lending.views(plan.columns, plan.at)[0]

    def weight(self, place: int) -> Tensor:
        """The one that all share."""
        shard, index = self._place[place]
        return _tables(shard).weight(index)

    def watch(self, frozen: Set[int]) -> None:
        """What is written from here on is to be found."""
        self._seen = self._marks(frozen)

    def marked(self, frozen: Set[int]) -> list[int]:
        """Places of those into which somebody has written by name, or in whose place is another tensor."""
        marks = zip(sorted(self.places - frozen), self._marks(frozen), self._seen, strict=True)
        return [place for place, now, before in marks if now != before]

    def written(self) -> list[int]:
        """Places of those whose lent memory has been written into, also through `.data`."""
        if self._lending is None:
            return []
        tables = [table for shard in self._shards for table in shard.plan.tables]
        return [table.place for table in tables if 0 in self._lending.written(table.columns, table.at)]

    def drop(self) -> None:
        """Whatever was written into lent memory."""
        if self._lending is not None:
            for shard in self._shards:
                for table in shard.plan.tables:
                    self._lending.drop(table.columns, table.at)

    def _marks(self, frozen: Set[int]) -> list[tuple[int, int]]:
        tables = [self._parameters[place] for place in sorted(self.places - frozen)]
        return [(table._version, table.data_ptr()) for table in tables]


def _tables(shard: Shard) -> Tables:
    assert shard.tables is not None
    return shard.tables
