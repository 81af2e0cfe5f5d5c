"""What a worker's optimizer shows of the run: the state in the shards, copied on access, and the entries of param
groups that steps change.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.store.group_changes import read
from scalebook.training.engine.store.hosts import Host
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.optimizer_state import copied
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.worker.replica import Replica

ParameterState = dict[str, Any]


class OptimizerStateView(defaultdict[Tensor, ParameterState]):
    """Replaces `optimizer.state`, read-only: `read` gives the newest state, `version` says when it changes.

    A copy or pickle of it is a plain state. Writes into it do not reach the run.
    """

    def __init__(self, read: Callable[[], Mapping[Tensor, ParameterState]], version: Callable[[], object]) -> None:
        super().__init__(dict)
        self._read, self._version = read, version
        self._of: object = None

    @property
    def is_read(self) -> bool:
        """Whether somebody has read it, and may have written into the copy."""
        return self._of is not None

    def forget(self) -> None:
        """Drop the copy."""
        if self._of is not None:
            super().clear()
            self._of = None

    def plain(self) -> defaultdict[Tensor, ParameterState]:
        """The present state as a plain dict."""
        self._renew()
        return defaultdict(dict, super().items())

    def _renew(self) -> None:
        now = self._version()
        if now != self._of:
            super().clear()
            super().update(self._read())
            self._of = now

    def __reduce__(self) -> tuple[Any, ...]:
        return defaultdict, (dict, self.plain())

    def __getitem__(self, parameter: Tensor) -> ParameterState:
        self._renew()
        return super().__getitem__(parameter)

    def __contains__(self, parameter: object) -> bool:
        self._renew()
        return super().__contains__(parameter)

    def __iter__(self) -> Iterator[Tensor]:
        self._renew()
        return super().__iter__()

    def __len__(self) -> int:
        self._renew()
        return super().__len__()

    def get(self, parameter: Tensor, default: Any = None) -> Any:
        self._renew()
        return super().get(parameter, default)

    def keys(self) -> Any:
        self._renew()
        return super().keys()

    def values(self) -> Any:
        self._renew()
        return super().values()

    def items(self) -> Any:
        self._renew()
        return super().items()


class StateSwap:
    """Makes an optimizer show the run's state instead of its own, from `show` to `hide`."""

    def __init__(
        self, optimizer: Optimizer, read: Callable[[], Mapping[Tensor, ParameterState]], version: Callable[[], object]
    ) -> None:
        """`read` and `version`: as in `OptimizerStateView`."""
        self.optimizer, self._shown = optimizer, OptimizerStateView(read, version)

    @property
    def is_on(self) -> bool:
        return self.optimizer.state is self._shown

    @property
    def is_untouched(self) -> bool:
        """Whether the optimizer's state equals the run's: it is shown, and nobody can have written into a copy."""
        return self.is_on and not self._shown.is_read

    def show(self) -> None:
        """Show the run's state in the optimizer, read-only; during training."""
        self._shown.forget()
        self.optimizer.state = self._shown

    def hide(self, keeps: bool = True) -> None:
        """Undo `show`: the optimizer `keeps` the state shown last, or has none."""
        if self.is_on:
            self.optimizer.state = self._shown.plain() if keeps else defaultdict(dict)
        self._shown.forget()

    def forget(self) -> None:
        """The shown state belongs to an older version; drop it."""
        self._shown.forget()


State = dict[Any, Any]
"""By place of the parameter; what belongs to no parameter keeps its own key."""


class RunState(StateSwap):
    """The state in the shards: of the last snapshot until the worker goes on, else the present one."""

    def __init__(self, host: Host, replica: Replica, optimizer: Optimizer) -> None:
        super().__init__(optimizer, self._read, self._version)
        self.host, self.replica = host, replica
        self.of_snapshot: State | None = None

    def value(self) -> State:
        """The snapshot's state while there is one, else the present one."""
        return self.now() if self.of_snapshot is None else self.of_snapshot

    def now(self) -> State:
        """The present state of the optimizer that makes the updates, in the shards."""
        self.host.versions.fetch()
        state: State = {}
        for shard in self.host.partition.shards:
            with shard.applying:
                state.update(shard.optimizer_state())
        return _sorted(state)

    def locked(self) -> State:
        """As `now`, at one moment for all shards; the caller holds each shard's `applying`."""
        state: State = {}
        for shard in self.host.partition.shards:
            state.update(shard.optimizer_state())
        return _sorted(state)

    def go_on(self) -> None:
        """The worker goes on from its snapshot."""
        self.of_snapshot = None
        self.forget()

    def initial_state(self) -> State:
        """State that somebody has put into the optimizer before training, for the shards."""
        if self.is_untouched:
            return {}  # as it is in the shards
        state: State = self.optimizer.state_dict()["state"]
        return state

    def hide_state(self) -> None:
        """Undo `show`: the optimizer has the state of the last snapshot, or none."""
        self.hide(keeps=self.of_snapshot is not None)

    def _read(self) -> Mapping[Tensor, Any]:
        parameters = self.replica.parameters
        return {parameters[key] if isinstance(key, int) else key: value for key, value in self.value().items()}

    def _version(self) -> object:
        return (
            id(self.of_snapshot) if self.of_snapshot else tuple(shard.version for shard in self.host.partition.shards)
        )


def _sorted(state: State) -> State:
    """Parameters in order, then what belongs to no parameter."""
    return dict(sorted(state.items(), key=lambda item: (not isinstance(item[0], int), item[0])))


class LocalStepState(RunState):
    """The state of a worker with local steps, whose optimizer keeps its own."""

    @override
    def value(self) -> State:
        return copied(self.optimizer.state_dict()["state"]) if self.of_snapshot is None else self.of_snapshot

    @override
    def show(self) -> None:
        """No-op: the optimizer shows its own state."""

    @override
    def initial_state(self) -> State:
        """Nothing: the shards do not need it."""
        return {}


class GroupView:
    """Shows the shards' entries in `optimizer`'s groups. What a schedule or a callback writes there travels with the
    worker's next push, and counts as in a plain optimizer; unchanged entries do not travel."""

    def __init__(self, partition: OptimizerPartition, optimizer: Optimizer) -> None:
        self._shards = [(number, shard) for number, shard in enumerate(partition.shards) if shard.notes is not None]
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
