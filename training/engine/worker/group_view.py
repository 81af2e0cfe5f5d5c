"""Entries of param groups that steps change, as one worker's optimizer shows them."""

from collections.abc import Sequence, Set
from typing import Any

from torch.optim import Optimizer

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.store.group_changes import read
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest


class GroupView:
    """Shows the shards' entries in `optimizer`'s groups. What a schedule or a callback writes there travels with the
    worker's next push, and counts as in a plain optimizer; unchanged entries do not travel."""

    def __init__(self, section: OptimizerPartition, optimizer: Optimizer) -> None:
        self._shards = [(number, shard) for number, shard in enumerate(section.shards) if shard.notes is not None]
        self._optimizer = optimizer
        self._shown: dict[int, dict[str, Any]] = {}  # by number of the group
        self._texts: dict[int, bytes] = {}  # by number of the shard

    def load_version(self, versions: Sequence[Newest], anew: bool = False) -> None:
        """Show the entries of the versions held. Writes that have not been pushed stay, unless `anew`."""
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
        """By group, the entries of the newest version; for the simulator."""
        changed: list[dict[str, Any]] = [{} for _ in self._optimizer.param_groups]
        for _, shard in self._shards:
            assert shard.notes is not None
            for place, entries in zip(
                shard.plan.groups, read(shard.notes.text(shard.newest().buffer)).groups, strict=True
            ):
                changed[place].update({key: note.value for key, note in entries.items()})
        return changed

    def untouched_left_out(self, groups: Groups) -> Groups:
        """The groups without shown entries that nobody has changed."""
        if not self._shown:
            return groups
        return [
            {key: value for key, value in group.items() if key not in values or value is not values[key]}
            for group, values in ((group, self._shown.get(number, {})) for number, group in enumerate(groups))
        ]

    def pushed(self, groups: Groups) -> None:
        """These groups have been pushed: their values no longer count as written."""
        for number, values in self._shown.items():
            values.update({key: groups[number][key] for key in values.keys() & groups[number].keys()})

    @property
    def keys(self) -> list[Set[str]]:
        """By group, the entries that are shown."""
        return [self._shown.get(number, {}).keys() for number in range(len(self._optimizer.param_groups))]

    @property
    def is_touched(self) -> bool:
        """Whether an entry was written and not pushed."""
        groups = self._optimizer.param_groups
        return any(
            groups[number].get(key) is not value
            for number, values in self._shown.items()
            for key, value in values.items()
        )
