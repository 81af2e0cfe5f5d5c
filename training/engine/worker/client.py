"""The worker's end: pushes, pulls, and what happens between them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.memory.region import COMMUNICATE, GRADIENTS, METER, PULLED, ROW, WAIT, Control
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.gradient_transfer import EncodedPush, Push
from scalebook.training.engine.store.hosts import Host, Outcome
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.rebuilt_optimizer import has_modes, packed
from scalebook.training.engine.store.rounds import clip_
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.store.written_step import UnseenSettings
from scalebook.training.engine.trace import WorkerTrace
from scalebook.training.engine.worker.optimizer_view import GroupView, RunState
from scalebook.training.engine.worker.replica import COMPARED, Replica
from scalebook.training.engine.worker.table_reads import TableReads
from scalebook.training.engine.worker.worker_end import LocalState, PushResult, WrittenError
from scalebook.training.engine.worker_clock import Waits


def written_error(worker: int, names: Sequence[str], moment: str) -> WrittenError:
    """The error for writes into these parameters."""
    some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return WrittenError(
        f"model: worker {worker} wrote into {some} {moment}. Workers share the parameters, so these values would be "
        "lost. If the first batch initialises parameters, call self(batch) in configure_model, with the same batch in "
        "every worker. Keep other values in buffers, or in parameters that never require a gradient. To swap weights, "
        "do it in on_validation_start, and swap back in on_validation_end. To load weights, do it in on_train_start, "
        "with the same weights in every worker, or in on_train_end. Or train with strategy: auto, which lets a model "
        "write at any time."
    )


WARM_UP: Final = 20
"""A worker's first gradients, which are not measured: they take up to ten times as long."""


class OwnTime:
    """Adds to `Control.own` the time between the ends of two pushes, for the first optimizer, without waiting and
    without applying gradients, its own or others'.

    Intervals with an interruption (a validation, a checkpoint, a rest) are left out.
    """

    def __init__(self, worker: int, partition: OptimizerPartition) -> None:
        self._control, self._worker, self._shards = partition.control, worker, partition.shards
        self._is_noted = partition.number == 0 and partition.times_workers
        self._last: float | None = None
        self._pushes = 0

    def pushed(self) -> None:
        """A push is over, including its pull."""
        if not self._is_noted:
            return
        control, last = self._control, self._last
        others = control.seconds[self._worker * ROW + WAIT] + sum(shard.served_s for shard in self._shards)
        self._last = control.clock.now() - others
        self._pushes += 1
        if last is not None and self._pushes > WARM_UP:
            control.own[self._worker].add(self._last - last)

    def interrupted(self) -> None:
        """The present interval contains more than a gradient; leave it out."""
        self._last = None


class GradientSum:
    """The usable gradients since the last push, and the hyper-parameters of the last of them.

    `gradients`: their sum by parameter, in memory of its own. `valid`: whether there are any.
    """

    def __init__(self, n_push: int) -> None:
        self._every, self._count = n_push, 0
        self.gradients: list[Tensor | None] = []
        self.groups: Groups = []
        self.valid = False

    @property
    def is_full(self) -> bool:
        """Whether it must be pushed now."""
        return self._count == self._every

    @property
    def is_left(self) -> bool:
        """Whether there is a part of a sum left to push at the end."""
        return 0 < self._count < self._every and self.valid

    @torch.no_grad()
    def add(self, gradients: Sequence[Tensor | None], groups: Groups, valid: bool) -> None:
        """Add a gradient; after a full sum a new one begins. A gradient that is not `valid` counts, and adds
        nothing."""
        if self._count in (0, self._every):
            self.gradients, self.valid, self._count = [None] * len(gradients), False, 0
        self._count += 1
        self.groups = [dict(group) for group in groups]
        if valid:
            self.valid = True
            for place, gradient in enumerate(gradients):
                total = self.gradients[place]
                if gradient is not None:
                    self.gradients[place] = gradient.clone() if total is None else total.add_(gradient)

    def clear(self) -> None:
        """Start again after a push."""
        self._count = 0


@dataclass
class PendingPush:
    """A push from beginning to end. `gradients`: as handed in, clipped and summed. `usable`: whether this worker's last
    gradient is valid. `started`, `waited`: seconds on the run's clock at its start, and seconds waited until then.
    `is_sent`: whether it is sent now, or only added to a sum."""

    gradients: list[Tensor | None]
    groups: Groups
    valid: bool
    usable: bool
    started: float
    waited: float
    is_sent: bool = True


class Client:
    """One worker's end of one optimizer. Between two calls nothing changes the replica.

    With `downpour` (Dean et al. 2012, algorithm 7.1) the worker makes plain SGD steps on its own replica in between,
    and pushes the sum of its gradients.
    """

    def __init__(self, control: Control, worker: int, host: Host, replica: Replica, optimizer: Optimizer) -> None:
        self.host, self.replica, self.optimizer = host, replica, optimizer
        self._control, self._worker, self._counters = control, worker, host.partition.counters
        settings, rule = control.settings, control.settings.rule
        self._clip = None if rule.gathers else settings.clip
        self._sums, self._sum = settings.local.n_push > 1, GradientSum(settings.local.n_push)
        self._n_fetch = settings.local.n_fetch
        self._groups, self._steps = len(optimizer.param_groups), 0
        self._seq = max(self._counters.begun[worker], *(shard.applied(worker) for shard in host.partition.shards))
        self._has_modes = has_modes(optimizer)
        self._unseen: UnseenSettings | None = None
        if not (host.steps_here or settings.local.steps):
            self._unseen = UnseenSettings(optimizer, replica.parameters)
        self.names = [f"parameter {place}" for place in range(len(replica.parameters))]
        self._to_compare = 0
        self.state = RunState(host, replica, optimizer)
        self.notes = GroupView(host.partition, optimizer)
        self.bases: list[Newest] = []
        self.reads = TableReads(worker, host.partition, replica, lambda: self.bases)
        self._clock, self._now = control.clock, control.clock.now
        self.pulled, self._pulled_bytes = 0.0, 0  # of the last pull: when (s), bytes
        self._own = OwnTime(worker, host.partition)
        self._trace: WorkerTrace | None = None
        if settings.trace is not None:
            self._trace = WorkerTrace(settings.trace, host.partition.number, worker, settings.shards)

    @property
    def version(self) -> int:
        """Updates contained in the replica; of the oldest shard, if shards differ."""
        return min(base.version for base in self.bases)

    @property
    def seq(self) -> int:
        """The number of its last push."""
        return self._seq

    @property
    def steps(self) -> int:
        """The step count that learning rate schedules use."""
        return self.version

    def groups(self) -> list[dict[str, Any]]:
        """The param groups as in a state dict."""
        return packed(self.optimizer.param_groups)

    def name_parameters(self, names: Mapping[int, str]) -> None:
        """Set the names that errors use, by the id of the parameter."""
        pairs = zip(self.names, self.replica.parameters, strict=True)
        self.names = [names.get(id(parameter), name) for name, parameter in pairs]

    def started(self) -> None:
        """After `start`: all have the first version. No-op: a worker of shards holds it until it has another."""

    def begin_waits(self) -> Waits[None]:
        """Before the first gradient: wait until the rule lets this worker begin, then pull."""
        self._own.interrupted()
        yield from self.host.open(self._worker)
        self.check_foreign_writes("between two pulls", thorough=True)
        self._to_compare = COMPARED
        self.replica.watch_closely()
        yield from self._resume()

    def _resume(self) -> Waits[None]:
        yield from self._pull_waits()

    def complete(self) -> Waits[None]:
        """This worker has nothing to compute until it begins anew: complete what others wait for. No-op with shards."""
        yield from ()

    def leave(self) -> bool:
        """After `complete` of all its clients: others count on it no more. False if something is to be completed
        before that. No-op: shards need nothing of it."""
        return True

    def after_leaving(self) -> Waits[None]:
        """After `leave`: leave behind what others may read until this worker begins again. No-op with shards."""
        yield from ()

    def push(self, valid: bool = True) -> PushResult:
        """Push the gradients with the optimizer's present hyper-parameters, wait for the rule, pull.

        `valid` False: the gradients must not be applied (infinite under a loss scaler, say); the rule counts the push
        all the same. TimeoutError when nothing happens for the deadline; WrittenError as in `check_foreign_writes`.
        """
        return self._clock.play(self.push_waits(valid))

    def completed(self, pushed: PushResult) -> PushResult:
        """Returns `pushed`: a worker process has waited for the whole result."""
        return pushed

    def push_waits(self, valid: bool = True) -> Waits[PushResult]:
        """The waits of `push`."""
        self.replica.await_gradients()  # that is computing, and not yet a part of the push
        started, waited = self._now(), self._waited()
        self.check_foreign_writes("in a forward pass, in training_step or in a hook after on_train_batch_start")
        if self._unseen is not None:
            self._unseen.refuse_changes()
        gradients, groups = self._gradients(), self.pushed_groups
        if self._clip is not None:
            clip_(self._clip, gradients)
        self._steps += 1
        self._count_gradient()
        usable, is_sent = valid, True
        if self._sums:
            self._sum.add(gradients, groups, valid)
            gradients, valid, is_sent = self._sum.gradients, self._sum.valid, self._sum.is_full
        return (yield from self._send_waits(PendingPush(gradients, groups, valid, usable, started, waited, is_sent)))

    def _send_waits(self, push: PendingPush) -> Waits[PushResult]:
        """Send the push, wait for the rule, and bring the replica up to date."""
        verdict, staleness = Verdict.ADMIT, 0
        if push.is_sent:
            verdict, staleness = yield from self.push_gradients(push.gradients, push.groups, push.valid)
            self.notes.pushed(push.groups)
            push.gradients = []  # free while the worker waits
            yield from self.host.await_turn(self._worker)
            if self.host.partition.admission.has_dropped(self.version):
                verdict = Verdict.END
        yield from self._update_replica(push)
        is_last = verdict is Verdict.END or self.host.is_over()
        self._communicated(push.started, push.waited)
        self._own.pushed()
        return PushResult(self.version, verdict is Verdict.ADMIT, staleness, is_last, push.is_sent)

    def _update_replica(self, push: PendingPush) -> Waits[None]:
        """Bring the replica up to date after a push."""
        if self._steps % self._n_fetch == 0:
            yield from self._pull_waits()
        elif push.usable:
            self.replica.step(self.optimizer.param_groups)

    def push_rest_waits(self) -> Waits[bool]:
        """At the end, push the part of a sum that is left (`downpour`), with the hyper-parameters of its last gradient.

        Lightning steps after the last batch in the same way, however few it has accumulated. False if the budget of
        updates does not allow it.
        """
        if not self._sum.is_left:
            return True
        started, waited = self._now(), self._waited()
        self.check_foreign_writes("after its last step", thorough=True)
        verdict, _ = yield from self.push_gradients(self._sum.gradients, self._sum.groups, valid=True)
        self._sum.clear()
        yield from self._pull_waits()
        self._communicated(started, waited)
        return verdict is not Verdict.END

    def check_foreign_writes(self, moment: str, thorough: bool = False) -> None:
        """Call before the replica is replaced by another version. `WrittenError`, naming the `moment`, if somebody has
        written into it since the last pull. Allowed is the rounding of an optimizer that swaps weights for a
        validation, and back. ValueError if param groups have been added to the optimizer."""
        self.check_groups()
        written = self.replica.written(thorough or self._to_compare > 0)
        self._to_compare -= 1
        if written and not (self._has_modes and all(map(self.replica.is_rounded, written))):
            raise self.refused(written, moment)
        self.replica.unfreeze()

    def check_groups(self) -> None:
        """ValueError if param groups have been added, for which no memory was planned."""
        if len(self.optimizer.param_groups) != self._groups:
            raise ArgumentError(
                "optimizer-not-supported",
                "optimizer",
                "a param group was added during training",
                "Add all groups in configure_optimizers and freeze them with requires_grad, or train "
                "with strategy: auto.",
            )

    def refused(self, places: Sequence[int], moment: str) -> WrittenError:
        """The error for writes into the parameters at these places."""
        return written_error(self._worker, [self.names[place] for place in places], moment)

    def adopt(self, places: Sequence[int]) -> None:
        """Before training: copy what was written into these parameters to the first version."""
        if places:
            self.replica.adopt(places)

    def pull(self, moment: str = "between two pulls") -> int:
        """Make the replica the newest version; returns it (of the oldest shard, if they differ).

        Checks for writes before that: see `check_foreign_writes`.
        """
        self.check_foreign_writes(moment, thorough=True)
        self._own.interrupted()
        return self._pull()

    def _pull(self) -> int:
        self.pin_newest()
        self._load_versions()
        self.notes.load_version(self.bases)
        return self.version

    def pin_newest(self) -> None:
        """Pin the newest version as the base of the next push; the replica stays as it is."""
        self.state.go_on()
        self.replica.await_copy()
        self.bases = self.host.pull(self._worker)
        self.pulled = self._now()

    def _pull_waits(self) -> Waits[None]:
        self._pull()
        yield from self._clock.receives(self._worker, self._pulled_bytes)

    def _count_gradient(self) -> None:
        self._control.counters[self._worker * ROW + GRADIENTS] += 1

    def _load_versions(self, whole: bool = False) -> None:
        self._count_pulled(self.replica.load_versions(self.bases, whole))

    def _count_pulled(self, sizes: Sequence[int]) -> None:
        offset = self._worker * METER + PULLED
        for shard, size in zip(self.host.partition.shards, sizes, strict=True):
            shard.counters.meters[offset] += size
        self._pulled_bytes, self.reads.taken = sum(sizes) + self.reads.taken, 0

    def _gradients(self) -> list[Tensor | None]:
        """The gradients; those of sparse tables with their duplicates summed."""
        gradients = self.host.transfer.stage(self.replica.gradients())
        for place, gradient in enumerate(gradients):
            if gradient is None or gradient.is_sparse is (place in self.replica.tables):
                continue
            kind = "a sparse" if gradient.is_sparse else "a dense"
            raise ArgumentError(
                "model-not-supported",
                "model",
                f"{self.names[place]} has {kind} gradient",
                "Sparse gradients are supported only for weights of nn.Embedding and nn.EmbeddingBag with sparse=True "
                "that no other kind of layer uses. Set sparse=False.",
            )
        for place in self.replica.tables:
            if (sparse := gradients[place]) is not None:
                gradients[place] = sparse.coalesce()
        return gradients

    @property
    def pushed_groups(self) -> Groups:
        """The present hyper-parameters that a push travels with."""
        return self.notes.untouched_left_out(self.optimizer.param_groups)

    def publish_state(self) -> None:
        """Before training: copy the state and groups that were put into the optimizer to the first version."""
        state = self.state.initial_state()  # loaded by whoever loaded weights, or the constructor's own
        if state or self.notes.is_touched:
            for shard in self.host.partition.shards:
                shard.restore(shard.version, state or shard.optimizer_state(), self.groups())

    def local_state(self) -> LocalState | None:
        """Local state of the snapshot while there is one; None if the worker makes no local steps."""
        return None

    def snapshot(self, renew: bool = True) -> tuple[int, dict[str, Any]]:
        """Version and optimizer state dict at this moment; the replica has the parameters, in memory of its own.

        With several shards, a push of another worker that is under way may be part of some of them, not of all.
        """
        self._own.interrupted()
        self.replica.await_copy()
        self.host.versions.fetch()
        with ExitStack() as locks:  # of all shards, in order; whoever applies has one at a time
            for shard in self.host.partition.shards:
                locks.enter_context(shard.applying)
            self.bases = [shard.pin(self._worker) for shard in self.host.partition.shards]
            state = self.state.locked()
        self.pulled = self._now()
        self.notes.load_version(self.bases)
        if renew:
            self._load_versions(whole=True)
            self.replica.privatise()
        self.state.of_snapshot = state
        return self.version, {"state": state, "param_groups": self.groups()}

    def push_gradients(self, gradients: list[Tensor | None], groups: Groups, valid: bool) -> Waits[Outcome]:
        """Push only: no wait for the rule and no pull."""
        encoded = self.host.transfer.encode(self._worker, self._seq + 1, gradients, valid)
        yield from self._clock.sends(self._worker, sum(encoded.sizes) if valid else 0)
        return (yield from self.push_encoded(encoded, groups, valid))

    def push_encoded(self, encoded: EncodedPush, groups: Groups, valid: bool) -> Waits[Outcome]:
        """The rest of `push_gradients`, after it has travelled."""
        gradients = self.host.transfer.decode(encoded)
        self._seq += 1
        self._counters.begun[self._worker] = self._seq
        if self._trace is not None:
            self._trace.record_push(self._seq, [base.version for base in self.bases], valid, groups)
        push = Push(
            self._worker, self._seq, self.bases, self.pulled, gradients, groups, valid, encoded.sizes, encoded.frames
        )
        outcome = yield from self.host.push(push)
        if valid and outcome.verdict is Verdict.ADMIT:
            self.host.transfer.store_residual(self._worker, self._seq)
        self.host.partition.admission.tick(self._worker)
        return outcome

    def _waited(self) -> float:
        return float(self._control.seconds[self._worker * ROW + WAIT])

    def _communicated(self, started: float, waited: float) -> None:
        spent = self._now() - started - (self._waited() - waited)
        self._control.seconds[self._worker * ROW + COMMUNICATE] += spent
