"""One model that serves as the model of each simulated worker in turn, without a copy of its parameters."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.sim.sim_workers import SimulatedWorkers
from scalebook.training.engine.store.rebuilt_optimizer import counterpart, has_modes, parameters_of, rebuild
from scalebook.training.engine.worker.peer_client import PeerClient
from scalebook.training.engine.worker.replica import rounded
from scalebook.training.engine.worker.shared_state import RandomStream

Hyper = list[dict[str, Any]]
"""Param groups without their parameters."""


class _Own:
    """What one worker owns: optimizers over parameters that point to the version it holds, buffers, and states of
    random numbers."""

    def __init__(self, optimizers: Sequence[Optimizer], buffers: Sequence[Tensor], streams: list[Any]) -> None:
        self.optimizers = [
            rebuild(optimizer, [counterpart(p, p.data) for p in parameters_of(optimizer)]) for optimizer in optimizers
        ]
        self.parameters = [p for optimizer in self.optimizers for p in parameters_of(optimizer)]
        self.buffers = [buffer.detach().clone() for buffer in buffers]
        self.streams = streams
        self.asked: list[Hyper] | None = None  # hyper-parameters of when it began its gradient, by optimizer
        self._given = [_hyper(optimizer) for optimizer in self.optimizers]  # those that it was handed last
        self.stepped: list[list[set[str]]] = [[set() for _ in groups] for groups in self._given]
        """By optimizer and group, the entries that steps change: its own steps or the shards'."""

    def give(self, hyper: Sequence[Hyper]) -> None:
        """Set its hyper-parameters, by optimizer."""
        self.changed()
        _set(self.optimizers, hyper)
        self._given = [_hyper(optimizer) for optimizer in self.optimizers]

    def changed(self) -> list[Hyper]:
        """By optimizer, the entries that steps change, as they are now."""
        now = [_hyper(optimizer) for optimizer in self.optimizers]
        for groups, given, keys in zip(now, self._given, self.stepped, strict=True):
            for own, was, of in zip(groups, given, keys, strict=True):
                of.update(key for key, value in own.items() if value is not was.get(key))
        return [
            [{key: own[key] for key in of if key in own} for own, of in zip(groups, keys, strict=True)]
            for groups, keys in zip(now, self.stepped, strict=True)
        ]


class ModelMultiplexer:
    """`optimizers` are over the model's parameters, before training, and give every push its hyper-parameters.

    `buffers()` returns the model's buffers, since a forward pass may replace one; each worker begins with copies of the
    present ones, and a worker that returns keeps its own. `streams`: random numbers, of which each worker has its own.
    From `switch_to(worker)` until the next such call the model is that worker's; `put` gives it other parameters
    meanwhile, to be read.

    Hyper-parameters: `begins(worker)` stores them when the worker begins its gradient, and they are restored while the
    model is this worker's, so that a schedule's rate belongs to the version it computes from. A change made meanwhile
    travels with that gradient, and from `shown_again` on also holds for workers that begin later. What steps change in
    param groups belongs to the worker, like its version.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        buffers: Callable[[], Sequence[Tensor]] = tuple,
        streams: Sequence[RandomStream] = (),
    ) -> None:
        self._streams = streams
        self._optimizers, self._buffers = list(optimizers), buffers
        self.parameters = [p for optimizer in self._optimizers for p in parameters_of(optimizer)]
        """The model's parameters, those of each optimizer in turn."""
        self._first = [buffer.detach().clone() for buffer in buffers()]
        self._own: dict[int, _Own] = {}
        self._shown: int | None = None  # whose buffers and random numbers are there
        self._begun: list[int] = []  # workers that began since the last switch
        self._advanced: list[Hyper] = []  # the hyper-parameters when the last of them began
        self._common: list[Hyper] | None = None  # while those of when somebody began are there
        self._is_apart = False  # what is drawn now counts for no worker

    def make(self, worker: int) -> list[Optimizer]:
        """The optimizers with which `worker` joins, and joins again when it returns."""
        streams = [stream.of_worker(worker) for stream in self._streams]
        if self._shown == worker:
            self._keep()
            self._shown = None
        buffers = self._own[worker].buffers if worker in self._own else self._first
        self._own[worker] = _Own(self._optimizers, buffers, streams)
        return self._own[worker].optimizers

    def start(self) -> None:
        """Make the model worker 0's, with its present buffers and random numbers; the others get copies of the
        buffers."""
        for own in self._own.values():
            own.buffers = [buffer.detach().clone() for buffer in self._buffers()]
        self._shown = 0

    def steps_change(self, worker: int, number: int, keys: Sequence[Set[str]]) -> None:
        """Note, by group of one optimizer, entries that steps are known to change in the version that `worker` has."""
        for of, more in zip(self._own[worker].stepped[number], keys, strict=True):
            of.update(more)

    def hand_groups(self) -> None:
        """Before the start: copy the param groups of the model's optimizers to those of all workers."""
        for own in self._own.values():
            own.give([_hyper(optimizer) for optimizer in self._optimizers])
            own.stepped = [[set() for _ in optimizer.param_groups] for optimizer in self._optimizers]

    def changed(self, worker: int, number: int) -> Hyper:
        """What steps have changed in the param groups of one optimizer, as `worker` has it."""
        return self._own[worker].changed()[number]

    def buffers_of(self, worker: int) -> list[Tensor]:
        """The worker's present buffers."""
        return list(self._buffers()) if worker == self._shown else self._own[worker].buffers

    def begins(self, worker: int) -> None:
        """Note that the worker begins a gradient, with the present hyper-parameters."""
        self._own[worker].asked = [_hyper(optimizer) for optimizer in self._optimizers]
        self._begun.append(worker)

    def advanced(self) -> None:
        """Workers have begun after a step whose hooks still run: what these change holds for them, too."""
        self._advanced = [_hyper(optimizer) for optimizer in self._optimizers]

    def _hand_changes(self) -> None:
        """Give those workers what was changed since, unless they began with another value."""
        for worker in self._begun if self._advanced else ():
            began_with = self._own[worker].asked or []
            for optimizer, earlier, groups in zip(self._optimizers, self._advanced, began_with, strict=False):
                for present, before, group in zip(_hyper(optimizer), earlier, groups, strict=False):
                    changed = {key for key, value in present.items() if value is not before.get(key)}
                    group.update({key: present[key] for key in changed if group.get(key) is before.get(key)})
        self._begun = []

    def switch_to(self, worker: int) -> None:
        """Make the model `worker`'s: its version, buffers and random numbers; without gradients."""
        self._hand_changes()
        own = self._own[worker]
        for parameter, mine in zip(self.parameters, own.parameters, strict=True):
            parameter.data = mine.data
            parameter.grad = None
        self.be(worker)
        self._is_apart = False
        if own.asked is not None:
            self._common = [_hyper(optimizer) for optimizer in self._optimizers]
            _set(self._optimizers, own.asked)
        _set(self._optimizers, own.changed())

    def be(self, worker: int) -> None:
        """Load the buffers and the random numbers of `worker`."""
        if worker == self._shown and not self._is_apart:
            return
        self._keep()
        own, self._shown = self._own[worker], worker
        for buffer, saved in zip(self._buffers(), own.buffers, strict=True):
            buffer.data = saved
        for stream, state in zip(self._streams, own.streams, strict=True):
            stream.load(state)

    def _keep(self) -> None:
        """Store the buffers and the random numbers of the present worker."""
        if self._shown is not None:
            self._own[self._shown].buffers = [buffer.data for buffer in self._buffers()]
        if self._is_apart:
            return
        streams = [stream.state() for stream in self._streams]
        if self._shown is not None:
            self._own[self._shown].streams = streams

    def put(self, values: Mapping[int, Tensor]) -> None:
        """Use these tensors as the parameters at these places of `parameters`."""
        for place, value in values.items():
            self.parameters[place].data = value

    def carry(self, worker: int) -> None:
        """Copy changes of the model's parameters to `worker`'s: replaced tensors, and `requires_grad`."""
        for parameter, mine in zip(self.parameters, self._own[worker].parameters, strict=True):
            if mine.requires_grad != parameter.requires_grad:
                mine.requires_grad_(parameter.requires_grad)
            if mine.data_ptr() != parameter.data_ptr():  # somebody has put another tensor there
                mine.data = parameter.data

    def hand_over(self, worker: int) -> None:
        """Give `worker` the gradients, and all changes of its model and hyper-parameters.

        ValueError if a param group was added.
        """
        own = self._own[worker]
        for parameter, mine in zip(self.parameters, own.parameters, strict=True):
            mine.grad, parameter.grad = parameter.grad, None
        self.carry(worker)
        for optimizer, theirs in zip(self._optimizers, own.optimizers, strict=True):
            if len(optimizer.param_groups) != len(theirs.param_groups):
                raise ArgumentError(
                    "optimizer-not-supported",
                    "optimizer",
                    "a param group was added during training",
                    "Add all groups in configure_optimizers and freeze them with requires_grad, or train "
                    "with strategy: auto.",
                )
        own.give([_hyper(optimizer) for optimizer in self._optimizers])

    def shown_again(self, worker: int) -> None:
        """After `hand_over`: restore the shared hyper-parameters, for the worker that begins next.

        With several workers, random numbers drawn until the next switch (by a validation, say) change no worker's own.
        """
        if len(self._own) > 1:
            self._keep()
            self._is_apart = True
        own_groups, common, self._common = self._own[worker].asked, self._common, None
        if own_groups is None or common is None:
            return
        for optimizer, theirs, ours in zip(self._optimizers, own_groups, common, strict=True):
            for group, was, now in zip(optimizer.param_groups, theirs, ours, strict=True):
                group.update({key: value for key, value in now.items() if group.get(key) is was.get(key)})


class BetweenWorkers:
    """What the model shows while no worker's gradient is due: the newest version, lent; or a copy of it for a snapshot,
    which may be written to."""

    def __init__(self, workers: SimulatedWorkers, multiplexer: ModelMultiplexer) -> None:
        self._workers, self._multiplexer = workers, multiplexer
        self._put: dict[int, Tensor] = {}
        self._is_copy, self._last = False, 0
        self._has_modes = any(has_modes(client.optimizer) for client in workers.joined[0].clients)

    def show_newest(self, last: int = 0) -> None:
        """Show the newest version until the next worker's turn. `last`: the worker whose turn it was; peers have no
        common version, so its parameters are shown."""
        self._last, self._put, self._is_copy = last, {}, False
        self._put = self._newest()
        self._multiplexer.put(self._put)

    def show_copy(self) -> None:
        """Show a copy of the newest version; of peers, their mean."""
        self._is_copy = True
        self._put = {place: value.clone() for place, value in self._newest().items()}
        self._multiplexer.put(self._put)

    def reset(self) -> None:
        """A worker's turn begins."""
        self._put, self._is_copy = {}, False

    def check_foreign_writes(self, moment: str) -> None:
        """`WrittenError`, naming the `moment`, if somebody has written into the model. No-op during a worker's turn."""
        if not self._put:
            return
        newest = self._newest() if self._is_copy else self._put
        written = [
            place
            for place, value in newest.items()
            if self._multiplexer.parameters[place].data_ptr() != self._put[place].data_ptr()
            or (self._is_copy and not _same(self._multiplexer.parameters[place].detach(), value))
        ]
        if not written:
            return
        if not self._has_modes or not all(self._is_rounded(place, newest[place]) for place in written):
            raise self._workers.joined[0].clients[0].refused(written, moment)
        self.show_newest(self._last)

    def _is_rounded(self, place: int, newest: Tensor) -> bool:
        return rounded(self._multiplexer.parameters[place].detach(), newest)

    def _newest(self) -> dict[int, Tensor]:
        """The parameters of the newest version, by their places in the model's."""
        by_place: dict[int, Tensor] = {}
        first = 0
        for number, (client, partition) in enumerate(
            zip(self._workers.joined[0].clients, self._workers.partitions, strict=True)
        ):
            peer = self._workers.joined[self._last].clients[number]
            if isinstance(client, PeerClient) and isinstance(peer, PeerClient):
                values = client.mean() if self._is_copy else [value.clone() for value in peer.values]
                seen = {place: value for place, value in enumerate(values) if place not in client.replica.frozen}
            else:
                seen = client.replica.seen([shard.newest() for shard in partition.shards])
            by_place |= {first + place: value for place, value in seen.items()}
            first += len(parameters_of(client.optimizer))
        return by_place


def _hyper(optimizer: Optimizer) -> Hyper:
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def _set(optimizers: Sequence[Optimizer], hyper: Sequence[Hyper]) -> None:
    for optimizer, groups in zip(optimizers, hyper, strict=True):
        for group, given in zip(optimizer.param_groups, groups, strict=True):
            group.update(given)


def _same(mine: Tensor, other: Tensor) -> bool:
    return mine.shape == other.shape and bool(((mine == other) | (mine.isnan() & other.isnan())).all())
