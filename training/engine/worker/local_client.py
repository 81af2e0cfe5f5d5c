"""The end of a worker that makes local steps, and pushes how far they have moved it (`local:`)."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.memory.region import Control
from scalebook.training.engine.store.hosts import Host
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.rebuilt_optimizer import is_torchs, original_of
from scalebook.training.engine.store.rounds import clip_
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.store.written_step import WrittenStep
from scalebook.training.engine.worker.client import Client, PendingPush
from scalebook.training.engine.worker.optimizer_view import LocalStepState
from scalebook.training.engine.worker.replica import Replica
from scalebook.training.engine.worker.worker_end import LocalState, PushResult
from scalebook.training.engine.worker_clock import Waits


class LocalReplica(Replica):
    """A replica in memory of its own. Its base is the versions held: those taken last, or by `rebase` since; with a
    codec, their decoded values."""

    def __init__(self, partition: OptimizerPartition, parameters: Sequence[Parameter], worker: int) -> None:
        super().__init__(partition, parameters, own=True, worker=worker)
        self._aside: list[Tensor] = []  # its own values, while it shows others

    def rebase(self, versions: Sequence[Newest]) -> Sequence[int]:
        """Make these versions the base without loading them; returns bytes as `load_versions` does."""
        self._held = list(versions)
        if self._pulls is not None:
            self.await_copy()  # frames are decoded to where copies begin
            return [
                self._pulls.advance(number, shard.views[newest.buffer], self.frozen)
                for number, (shard, newest) in enumerate(zip(self._shards, versions, strict=True))
            ]
        return self._sizes if not self.frozen else [self._bytes_of(shard, self.frozen) for shard in self._shards]

    def stepped(self) -> None:
        """The worker has made a local step."""
        self._step_made()

    @torch.no_grad()
    def gone(self) -> list[Tensor | None]:
        """base - parameters, on the CPU; None for parameters that are this worker's alone."""
        return [
            None if place in self.frozen else self._base(place) - parameter.detach().to("cpu")
            for place, parameter in enumerate(self.parameters)
        ]

    @torch.no_grad()
    def moved(self) -> float:
        """||parameters - base|| / ||base||, Euclidean, over all shared parameters; infinite if the base is 0."""
        pairs = [(gone, self._base(place)) for place, gone in enumerate(self.gone()) if gone is not None]
        way, size = (torch.stack([one.float().norm() for one in of]).norm() for of in zip(*pairs, strict=True))
        return float(way / size) if size else math.inf if way else 0.0

    @torch.no_grad()
    def move(self, by: Sequence[Tensor | None]) -> None:
        """Add these to the parameters."""
        for parameter, add in zip(self.parameters, by, strict=True):
            if add is not None:
                parameter.add_(add.to(parameter.device))
        self.stepped()

    def show_versions(self, versions: Sequence[Newest]) -> None:
        """Load the values of these versions until `show_own`; nobody writes to them while they are copied."""
        values: dict[int, Tensor] = {}
        for shard, newest in zip(self._shards, versions, strict=True):
            values.update(zip(shard.plan.parameters, shard.views[newest.buffer], strict=True))
        self.show([values[place] for place in range(len(self.parameters))])

    @torch.no_grad()
    def show(self, values: Sequence[Tensor]) -> None:
        """Load these values, one for each parameter, until `show_own`."""
        self.await_copy()
        if not self._aside:
            self._aside = [parameter.detach().clone() for parameter in self.parameters]
        for place, value in enumerate(values):
            if place not in self.frozen:
                self.parameters[place].copy_(value)
        self.stepped()
        self._keep()

    @torch.no_grad()
    def show_own(self) -> None:
        """Undo `show_versions`, if it was called."""
        if self._aside:
            for parameter, own in zip(self.parameters, self._aside, strict=True):
                parameter.copy_(own)
            self._kept, self._aside = dict(enumerate(self._aside)), []
            self._homes = {place: parameter.data for place, parameter in enumerate(self.parameters)}
            self._watch()

    def drop_aside(self) -> bool:
        """Undo `show` without its own values, which lie elsewhere; whether anything was shown."""
        has_shown, self._aside = bool(self._aside), []
        return has_shown

    def _base(self, place: int) -> Tensor:
        return self._published(place) if self._pulls is None else self._pulls.known[place]


class LocalClient(Client):
    """Each push is a step of the worker's own optimizer on its replica, in memory of its own. When `Local.is_due` says
    so, the distance to the base, which is the parameters pulled last, is sent like a gradient, with the outer
    optimizer's hyper-parameters, and the worker goes on from the newest parameters.

    A worker that `keeps` its parameters pulls the newest beside them instead, and pushes the elastic force between the
    two.
    """

    def __init__(self, control: Control, worker: int, host: Host, replica: LocalReplica, optimizer: Optimizer) -> None:
        super().__init__(control, worker, host, replica, optimizer)
        self._mine = replica
        self.state = LocalStepState(host, replica, optimizer)
        settings = control.settings
        self._local, self._own_clip = settings.local, settings.clip
        self._share = settings.local.pull(control.workers)
        self._since = 0  # steps since the last push
        self._trains = self.is_late = False
        self._of_snapshot: LocalState | None = None
        is_alone = original_of(optimizer) is optimizer or control.workers == 1
        self._written_step = WrittenStep(optimizer, not is_torchs(optimizer), is_alone, settings.closures)

    @property
    @override
    def steps(self) -> int:
        """The worker's own steps so far. A late worker begins with the largest count of any worker."""
        return int(self._counters.steps[self._worker])

    def go_on_at(self, steps: int) -> None:
        """Before the first step: set the count."""
        self._counters.steps[self._worker] = steps

    @override
    def _resume(self) -> Waits[None]:
        if self._has_own():
            return
        yield from super()._resume()
        if not self._trains and self.is_late:
            self._fall_in()
        self._trains = True

    def _fall_in(self) -> None:
        """Give a late worker the largest step count, so that it pushes when the others do: they may wait for its push
        while it waits for their next step (`sync_dist`)."""
        others = [worker for worker in self._control.living() if worker != self._worker]
        if others:
            self.go_on_at(max(self._counters.steps[worker] for worker in others))
            self._since = min(max(self._counters.since[worker] for worker in others), self._local.every - 1)

    @override
    def push_waits(self, valid: bool = True) -> Waits[PushResult]:
        self.check_foreign_writes("in a forward pass, in training_step or in a hook after on_train_batch_start")
        self._count_gradient()
        self._step(valid)
        is_due = self._local.is_due(self._since, self.version, self._mine.moved)
        if is_due:
            self.replica.await_gradients()  # and the step, so that neither is counted as communication
        push = PendingPush([], self.pushed_groups, True, False, self._now(), self._waited(), is_due)
        if is_due:
            push.gradients = yield from self._pseudo_gradient()
        return (yield from self._send_waits(push))

    @override
    def push_rest_waits(self) -> Waits[bool]:
        """At the end, push how far the last steps have moved. False if the budget of updates does not allow it."""
        if not self._since:
            return True
        started, waited = self._now(), self._waited()
        self._show_own()
        gradients = yield from self._pseudo_gradient()
        verdict, _ = yield from self.push_gradients(gradients, self.pushed_groups, valid=True)
        self._communicated(started, waited)
        return verdict is not Verdict.END

    @override
    def pull(self, moment: str = "between two pulls") -> int:
        """Make the replica the newest version, unless it has local steps that have not been pushed.

        Returns its version. Checks for writes before that: see `check_foreign_writes`.
        """
        self._own.interrupted()
        self.check_foreign_writes(moment, thorough=True)
        self._show_own()
        return self.version if self._has_own() else self._pull()

    @property
    @override
    def pushed_groups(self) -> Groups:
        return self.host.partition.optimizer.param_groups

    @override
    def snapshot(self, renew: bool = True) -> tuple[int, dict[str, Any]]:
        """Version at this moment, and the state dict of the worker's own optimizer. The replica has the parameters of
        the shards until the next pull; then it has its own again."""
        self._own.interrupted()
        self.host.versions.fetch()
        with ExitStack() as locks:
            for shard in self.host.partition.shards:
                locks.enter_context(shard.applying)
            newest = [shard.newest() for shard in self.host.partition.shards]
            if renew:
                self._mine.show_versions(newest)
            self._of_snapshot = LocalState(outer=self.state.locked(), steps=self.steps)
        self.state.go_on()
        state = self.state.of_snapshot = self.state.value()
        return min(one.version for one in newest), {"state": state, "param_groups": self.groups()}

    @override
    def local_state(self) -> LocalState:
        if self.state.of_snapshot is not None and self._of_snapshot is not None:
            return self._of_snapshot
        return LocalState(outer=self.state.now(), steps=self.steps)

    @override
    def _update_replica(self, push: PendingPush) -> Waits[None]:
        if push.is_sent:
            self._counters.since[self._worker] = 0
            if not self._local.keeps:
                yield from self._pull_waits()

    def _step(self, valid: bool) -> None:
        self._since += 1
        self._counters.since[self._worker] = self._since
        self.state.go_on()
        self.go_on_at(self.steps + 1)
        if not valid:
            return
        if self._own_clip is not None:
            clip_(self._own_clip, [parameter.grad for parameter in self.replica.parameters])
        self._written_step()
        self._mine.stepped()

    def _pseudo_gradient(self) -> Waits[list[Tensor | None]]:
        """The pseudo-gradient: the base minus the worker's parameters. A worker that keeps its parameters pushes its
        share of that (EASGD's elastic force), and moves itself as far towards the newest."""
        if self._local.keeps:  # the force is from the newest
            yield from self.host.await_turn(self._worker)
            self.pin_newest()
            self._count_pulled(self._mine.rebase(self.bases))
            yield from self._clock.receives(self._worker, self._pulled_bytes)
        self._since = 0
        gone = self._mine.gone()
        if self._local.keeps:
            for gradient in gone:
                if gradient is not None:
                    gradient.mul_(self._share)
            self._mine.move(gone)
        return gone

    def _has_own(self) -> bool:
        """Whether it would lose local steps by taking the newest parameters."""
        return self._since > 0 or (self._trains and self._local.keeps)

    def _show_own(self) -> None:
        self.state.go_on()
        self._mine.show_own()
