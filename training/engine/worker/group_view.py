"""What steps change in an optimizer's param groups, as one worker's optimizer shows it."""

from collections.abc import Sequence, Set
from typing import Any

from torch.optim import Optimizer

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.store.group_changes import read
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest


class GroupView:
    """Entries of `optimizer`'s groups that are the shards': what somebody writes there (a schedule, a callback) travels
    with the worker's next push, and counts as in a plain optimizer; what nobody has touched does not travel."""

    def __init__(self, section: OptimizerPartition, optimizer: Optimizer) -> None:
        self._shards = [(number, shard) for number, shard in enumerate(section.shards) if shard.notes is not None]
        self._optimizer = optimizer
        self._shown: dict[int, dict[str, Any]] = {}  # by number of the group
        self._texts: dict[int, bytes] = {}  # by number of the shard

    def load_version(self, versions: Sequence[Newest], anew: bool = False) -> None:
        """Those of versions held. What somebody has written there and not pushed yet stays, unless `anew`."""
        for number, shard in self._shards:
            assert shard.notes is not None
            text = shard.notes.text(versions[number].buffer)
            if text == self._texts.get(number) and not anew:
                continue
            self._texts[number] = text
            noted = read(text)
            vars(self._optimizer).update(noted.attributes)
            for place, entries in zip(shard.plan.groups, noted.groups, strict=True):
                group, values = self._optimizer.param_groups[place], self._shown.setdefault(place, {})
                for key, note in entries.items():
                    if anew or key not in values or group.get(key) is values[key]:
                        group[key] = values[key] = note.value

    def newest(self) -> list[dict[str, Any]]:
        """By group, what the newest version has; where one process simulates all workers."""
        changed: list[dict[str, Any]] = [{} for _ in self._optimizer.param_groups]
        for _, shard in self._shards:
            assert shard.notes is not None
            for place, entries in zip(
                shard.plan.groups, read(shard.notes.text(shard.newest().buffer)).groups, strict=True
            ):
                changed[place].update({key: note.value for key, note in entries.items()})
        return changed

    def untouched_left_out(self, groups: Groups) -> Groups:
        """The groups, without what is shown there and nobody has touched."""
        if not self._shown:
            return groups
        return [
            {key: value for key, value in group.items() if key not in values or value is not values[key]}
            for group, values in ((group, self._shown.get(number, {})) for number, group in enumerate(groups))
        ]

    def pushed(self, groups: Groups) -> None:
        """These have been handed in: what they have is not written by somebody any more."""
        for number, values in self._shown.items():
            values.update({key: groups[number][key] for key in values.keys() & groups[number].keys()})

    @property
    def keys(self) -> list[Set[str]]:
        """By group, the entries that are shown."""
        return [self._shown.get(number, {}).keys() for number in range(len(self._optimizer.param_groups))]

    @property
    def is_touched(self) -> bool:
        """Whether somebody has written what has not been pushed."""
        groups = self._optimizer.param_groups
        return any(
            groups[number].get(key) is not value
            for number, values in self._shown.items()
            for key, value in values.items()
        )
