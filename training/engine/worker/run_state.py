"""The state of one optimizer in a run, for one worker: for its snapshots, and for its optimizer to show."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.store.hosts import Host
from scalebook.training.engine.store.state_view import StateSwap, copied
from scalebook.training.engine.worker.replica import Replica

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
        self.host.fetch_full()
        state: State = {}
        for shard in self.host.section.shards:
            with shard.applying:
                state.update(shard.optimizer_state())
        return _sorted(state)

    def locked(self) -> State:
        """As `now`, at one moment for all shards; the caller holds each shard's `applying`."""
        state: State = {}
        for shard in self.host.section.shards:
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
        return id(self.of_snapshot) if self.of_snapshot else tuple(shard.version for shard in self.host.section.shards)


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
