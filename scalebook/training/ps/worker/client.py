"""The worker's end: pushes, pulls, and what happens between them."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.ps.applying.hosts import Host, Outcome, Push, Way
from scalebook.training.ps.applying.rounds import clip_
from scalebook.training.ps.applying.shard import Newest
from scalebook.training.ps.clock import Steps
from scalebook.training.ps.coordination.admission import Verdict
from scalebook.training.ps.memory.region import COMMUNICATE, GRADIENTS, METER, PULLED, ROW, WAIT, Control
from scalebook.training.ps.optimizer.hyper import Groups
from scalebook.training.ps.optimizer.rebuilding import has_modes, packed, parameters_of
from scalebook.training.ps.trace import WorkerTrace
from scalebook.training.ps.worker.end import LocalState, Pushed, WrittenError
from scalebook.training.ps.worker.gradient_sum import GradientSum
from scalebook.training.ps.worker.growth import grown
from scalebook.training.ps.worker.journey import Journey, Leg
from scalebook.training.ps.worker.own_time import OwnTime
from scalebook.training.ps.worker.replica import Replica
from scalebook.training.ps.worker.run_state import RunState
from scalebook.training.ps.worker.shown_notes import ShownNotes
from scalebook.training.ps.worker.table_reads import TableReads
from scalebook.training.ps.worker.written import written_error

COMPARED: Final = 4
"""How often, first of all, a replica in memory of its own is compared in full: what is written into it through `.data`,
in place, leaves no other trace."""


class Client:
    """One worker's end of one optimizer. Between two calls nothing changes the replica.

    With `downpour` (Dean et al. 2012, algorithm 7.1) the worker makes plain SGD steps on its
    own replica in between, and pushes the sum of its gradients.
    """

    def __init__(self, control: Control, worker: int, host: Host, replica: Replica, optimizer: Optimizer) -> None:
        self.host, self.replica, self.optimizer = host, replica, optimizer
        self._control, self._worker, self._counters = control, worker, host.section.counters
        settings, rule = control.settings, control.settings.rule
        self._clip = None if rule.gathers else settings.clip
        self._sums, self._sum = settings.local.n_push > 1, GradientSum(settings.local.n_push)
        self._n_fetch = settings.local.n_fetch
        self._groups, self._steps = len(optimizer.param_groups), 0
        self._seq = max(self._counters.begun[worker], *(shard.applied(worker) for shard in host.section.shards))
        self._has_modes = has_modes(optimizer)
        self._may_write = host.shares_memory and settings.writable(control.workers)
        self.names = [f"parameter {place}" for place in range(len(replica.parameters))]
        self._to_compare: float = COMPARED
        self.state = RunState(host, replica, optimizer)
        self.notes = ShownNotes(host.section, optimizer)
        self.bases: list[Newest] = []
        self.reads = TableReads(worker, host.section, replica, lambda: self.bases)
        self.leg = Leg.HERE
        self.journey: Journey | None = None  # the last push
        self._clock, self._now = control.clock, control.clock.now
        self.pulled, self._taken = 0.0, 0  # of the last pull: when (s), bytes
        self._own = OwnTime(worker, host.section)
        self._trace: WorkerTrace | None = None
        if settings.trace is not None:
            self._trace = WorkerTrace(settings.trace, host.section.number, worker, settings.shards)

    @property
    def version(self) -> int:
        """Updates contained in the replica's parameters; of the oldest shard, where shards differ."""
        return min(base.version for base in self.bases)

    @property
    def seq(self) -> int:
        """The number of its last push."""
        return self._seq

    @property
    def steps(self) -> int:
        """What learning rates are scheduled by."""
        return self.version

    def groups(self) -> list[dict[str, Any]]:
        """The param groups as a state dict has them."""
        return packed(self.optimizer.param_groups)

    def name_parameters(self, names: Mapping[int, str]) -> None:
        """What errors call them: names by the id of the parameter."""
        pairs = zip(self.names, self.replica.parameters, strict=True)
        self.names = [names.get(id(parameter), name) for name, parameter in pairs]

    def begin_steps(self) -> Steps[None]:
        """Before the first gradient: wait until the rule lets this worker begin, then pull."""
        self.leg = Leg.TURN
        self._own.interrupted()
        yield from self.host.settle(self._worker)
        self.host.come_back(self._worker)
        yield from self.host.await_turn(self._worker)
        self.settle("between two pulls", thorough=True)
        yield from self._begin_anew_steps()

    def _begin_anew_steps(self) -> Steps[None]:
        yield from self._pull_steps()
        self.begun()

    def begun(self) -> None:
        """It has begun, with what it has pulled."""

    def push(self, valid: bool = True) -> Pushed:
        """Hand in the gradients with the optimizer's present hyper-parameters, wait for the rule, pull.

        `valid` False: the gradients are not to be applied (infinite under a loss scaler, say); the rule counts the push
        all the same. TimeoutError when nothing happens for the deadline; WrittenError as in `settle`.
        """
        return self._clock.play(self.push_steps(valid))

    def completed(self, pushed: Pushed) -> Pushed:
        """The same: a process of its own has waited for all there is to know."""
        return pushed

    def push_steps(self, valid: bool = True) -> Steps[Pushed]:
        """The steps of `push`."""
        self.replica.await_gradients()  # that is computing, and not yet a part of the push
        started, waited = self._now(), self._waited()
        self.settle("in a forward pass, in training_step or in a hook after on_train_batch_start")
        gradients, groups = self._gradients(), self.pushed_groups
        if self._clip is not None:
            clip_(self._clip, gradients)
        self._steps += 1
        self._count_gradient()
        usable, self.leg = valid, Leg.UP
        if self._sums:
            self._sum.add(gradients, groups, valid)
            gradients, valid = self._sum.gradients, self._sum.valid
            self.leg = Leg.UP if self._sum.is_full else Leg.HERE
        was_sent = self.leg is Leg.UP
        return (yield from self.journey_steps(Journey(gradients, groups, valid, usable, started, waited, was_sent)))

    def journey_steps(self, journey: Journey) -> Steps[Pushed]:
        """The rest of a push, from `leg` on; what travels there has arrived."""
        self.journey = journey
        if self.leg is Leg.UP:
            journey.verdict, journey.staleness = yield from self.hand_in(
                journey.gradients, journey.groups, journey.valid
            )
            self.notes.pushed(journey.groups)
            journey.gradients, self.leg = [], Leg.TURN
        if self.leg is Leg.TURN:
            yield from self.host.await_turn(self._worker)
            if self.host.has_dropped(self.bases):
                journey.verdict = Verdict.END
            self.leg = Leg.HERE
        if self.leg is Leg.HERE:
            yield from self._arrive_steps(journey)
        is_last = journey.verdict is Verdict.END or self.host.is_over()
        self._communicated(journey.started, journey.waited)
        self._own.pushed()
        applied = journey.verdict is Verdict.ADMIT
        return Pushed(self.version, applied, journey.staleness, is_last, journey.was_sent)

    def _arrive_steps(self, journey: Journey) -> Steps[None]:
        """What the replica becomes after a push."""
        if self._steps % self._n_fetch == 0:
            yield from self._pull_steps()
        elif journey.usable:
            self.replica.step(self.optimizer.param_groups)

    def push_rest_steps(self) -> Steps[bool]:
        """At the end, push the sum that has been begun (`downpour`), with the hyper-parameters of its last gradient.

        As Lightning steps in the last batch, however few it has accumulated by then. False: the budget of updates
        does not allow it.
        """
        if not self._sum.is_left:
            return True
        started, waited = self._now(), self._waited()
        self.settle("after its last step", thorough=True)
        verdict, _ = yield from self.hand_in(self._sum.gradients, self._sum.groups, valid=True)
        self._sum.clear()
        yield from self._pull_steps()
        self._communicated(started, waited)
        return verdict is not Verdict.END

    def settle(self, moment: str, thorough: bool = False) -> None:
        """Before the replica is left for another version: what somebody has written into it since the last pull.

        It becomes part of the newest version where this worker is the only one, so that nothing can come in between;
        else it is a `WrittenError`, which says at which `moment` it happened. But for the rounding of an optimizer that
        swaps weights for a validation, and back.
        """
        self.grow()
        self._to_compare -= 1
        written = self.replica.written(thorough or self._to_compare >= 0)
        if written and not self._may_write:
            if not self._has_modes or not all(map(self.replica.is_rounded, written)):
                raise self.refused(written, moment)
        elif written:
            self.adopt(written)
            self._to_compare = math.inf
        self.replica.thaw()

    def grow(self) -> None:
        """Take in what param groups have been added to the optimizer. ValueError where others would know nothing of it.

        The parameters, the optimizer's state and all counts go on as they are.
        """
        if len(self.optimizer.param_groups) == self._groups:
            return
        can_grow = self.host.shares_memory and self._control.settings.growable(self._control.workers)
        if not can_grow or self.replica.tables:
            raise ValueError(
                "optimizer: a param group was added during training. Add all groups in configure_optimizers and freeze "
                "them by requires_grad, or train with workers: 1, host: inline and local: none, without "
                "overlap, trace and sparse gradients."
            )
        is_shown = self.state.is_on
        kept = {id(self.replica.parameters[place]): state for place, state in self.state.value().items()}
        self.optimizer.state = defaultdict(dict)
        parameters = parameters_of(self.optimizer)
        state = {place: kept[id(p)] for place, p in enumerate(parameters) if id(p) in kept}
        self.replica.arrive()
        self.host.leave()
        self.host, self.replica = grown(self.host.section, self._worker, self.version, state)
        self.state.host, self.state.replica = self.host, self.replica
        self.notes = ShownNotes(self.host.section, self.optimizer)
        self.names += [f"parameter {place}" for place in range(len(self.names), len(parameters))]
        self._groups = len(self.optimizer.param_groups)
        self.bases = self.host.pull(self._worker)
        self._take()
        self.notes.show(self.bases)
        if is_shown:
            self.state.show()

    def refused(self, places: Sequence[int], moment: str) -> WrittenError:
        """The error that names these parameters."""
        alone = self._control.workers == 1
        return written_error(self._worker, [self.names[place] for place in places], moment, alone)

    def adopt(self, places: Sequence[int]) -> None:
        """Put what was written into these parameters into the version that the replica has, which is the newest and
        nobody else's: before training, or where this worker is alone."""
        if places:
            self.replica.adopt(places)

    def pull(self, moment: str = "between two pulls") -> int:
        """Make the replica the newest version; returns it (of the oldest shard, where they differ).

        What was written into it before: as in `settle`.
        """
        self.settle(moment, thorough=True)
        self._own.interrupted()
        return self._pull()

    def _pull(self) -> int:
        self.hold()
        self._take()
        self.notes.show(self.bases)
        return self.version

    def hold(self) -> None:
        """Have the newest version as the one that the next push is computed from; the replica stays as it is."""
        self.state.go_on()
        self.replica.arrive()
        self.bases = self.host.pull(self._worker)
        self.pulled = self._now()

    def _pull_steps(self) -> Steps[None]:
        self._pull()
        self.leg = Leg.DOWN
        yield from self._clock.receives(self._worker, self._taken)

    def _count_gradient(self) -> None:
        self._control.counters[self._worker * ROW + GRADIENTS] += 1

    def _take(self, whole: bool = False) -> None:
        self._count_taken(self.replica.take(self.bases, whole))

    def _count_taken(self, sizes: Sequence[int]) -> None:
        at = self._worker * METER + PULLED
        for shard, size in zip(self.host.section.shards, sizes, strict=True):
            shard.counters.meters[at] += size
        self._taken, self.reads.taken = sum(sizes) + self.reads.taken, 0

    def _gradients(self) -> list[Tensor | None]:
        """Those of sparse tables with their duplicates summed."""
        gradients = self.replica.gradients()
        if self._control.clock.alone:  # who plays others meanwhile puts other gradients there
            gradients = self.host.bring(gradients)
        for place, gradient in enumerate(gradients):
            if gradient is None or gradient.is_sparse is (place in self.replica.tables):
                continue
            kind = "a sparse" if gradient.is_sparse else "a dense"
            raise ValueError(
                f"model: {self.names[place]} has {kind} gradient. Sparse ones are for the weights of nn.Embedding and "
                "nn.EmbeddingBag with sparse=True, each used by such layers alone; write sparse=False."
            )
        for place in self.replica.tables:
            if (sparse := gradients[place]) is not None:
                gradients[place] = sparse.coalesce()
        return gradients

    @property
    def pushed_groups(self) -> Groups:
        """The hyper-parameters that its pushes travel with, as they are now."""
        return self.notes.untouched_left_out(self.optimizer.param_groups)

    def own(self) -> dict[str, Any]:
        """What it has of its own beside the versions held, copied: sums, steps between two pulls, what was decoded."""
        gradients = [None if p.grad is None else p.grad.clone() for p in self.replica.parameters]
        return {
            "steps": self._steps,
            "sum": self._sum.state() if self._sums else None,
            "gradients": gradients if self._steps_itself else None,
            "replica": self.replica.own(self._steps_itself),
            "rows_taken": self.reads.taken,
        }

    @property
    def _steps_itself(self) -> bool:
        """Whether its parameters may be others than those that it has pulled."""
        return self._sums or self._n_fetch > 1

    def go_on_from(
        self, bases: Sequence[Newest], pulled: float, leg: Leg, journey: Journey | None, own: Mapping[str, Any]
    ) -> None:
        """Be where a client of an earlier run was, whose counters are there again: it holds these versions, and has
        this of its `own`."""
        self.bases, self.pulled, self.leg, self.journey = list(bases), pulled, leg, journey
        self._seq, self._steps = self._counters.begun[self._worker], own["steps"]
        self.replica.have_own(self.bases, own["replica"])
        self.reads.taken = own["rows_taken"]
        if own["sum"] is not None:
            self._sum.load(own["sum"])
        if own["gradients"] is not None:
            for parameter, gradient in zip(self.replica.parameters, own["gradients"], strict=True):
                parameter.grad = gradient

    def have_groups(self) -> None:
        """After `go_on_from`, when the optimizer's param groups are there again."""
        self.notes.show(self.bases, anew=True)
        if self.journey is not None:
            self.journey.groups = self.pushed_groups

    def give_state(self) -> None:
        """Before training: what somebody has put into the optimizer's state and groups is the first version's."""
        state = self.state.given()  # loaded by whoever loaded weights, or the constructor's own
        if state or self.notes.is_touched:
            for shard in self.host.section.shards:
                shard.restore(shard.version, state or shard.optimizer_state(), self.groups())

    def local_state(self) -> LocalState | None:
        """Of the snapshot while there is one; None where the worker makes no steps of its own."""
        return None

    def snapshot(self, renew: bool = True) -> tuple[int, dict[str, Any]]:
        """Version and optimizer state dict of this moment; the replica has its parameters, in memory of its own.

        With several shards the one that others are pushing may be part of some of them already, not of all.
        """
        self._own.interrupted()
        self.replica.arrive()
        self.host.look()
        with ExitStack() as locks:  # of all shards, in order; whoever applies has one at a time
            for shard in self.host.section.shards:
                locks.enter_context(shard.applying)
            self.bases = [shard.hold(self._worker) for shard in self.host.section.shards]
            state = self.state.locked()
        self.pulled = self._now()
        self.notes.show(self.bases)
        if renew:
            self._take(whole=True)
            self.replica.privatise()
        self.state.of_snapshot = state
        return self.version, {"state": state, "param_groups": self.groups()}

    def hand_in(self, gradients: list[Tensor | None], groups: Groups, valid: bool) -> Steps[Outcome]:
        """A push and nothing else: neither a turn nor newer parameters follow."""
        way = self.host.send(self._worker, self._seq + 1, gradients, valid)
        yield from self._clock.sends(self._worker, sum(way.sizes) if valid else 0)
        return (yield from self.deliver(way, groups, valid))

    def deliver(self, way: Way, groups: Groups, valid: bool) -> Steps[Outcome]:
        """The rest of `hand_in`, when it has travelled."""
        gradients = self.host.receive(way)
        self._seq += 1
        self._counters.begun[self._worker] = self._seq
        if self._trace is not None:
            self._trace.note(self._seq, [base.version for base in self.bases], valid, groups)
        push = Push(self._worker, self._seq, self.bases, self.pulled, gradients, groups, valid, way.sizes)
        outcome = yield from self.host.push(push)
        self.host.keep(push, outcome)
        self.host.section.admission.tick(self._worker)
        return outcome

    def _waited(self) -> float:
        return float(self._control.seconds[self._worker * ROW + WAIT])

    def _communicated(self, started: float, waited: float) -> None:
        spent = self._now() - started - (self._waited() - waited)
        self._control.seconds[self._worker * ROW + COMMUNICATE] += spent
