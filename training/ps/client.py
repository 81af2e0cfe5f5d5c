"""The worker's end: pushes, pulls, and what happens between them."""

import copy
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.ps.door import Verdict
from training.ps.hosts import Host, Push
from training.ps.hyper import Groups
from training.ps.region import COMMUNICATE, ROW, WAIT, Control
from training.ps.replica import Replica
from training.ps.rounds import clip_
from training.ps.shard import Newest
from training.ps.trace import WorkerTrace


class Pushed(NamedTuple):
    """What became of a push: the version the replica has now, whether the gradient was let in, and whether it was the
    last that the budget of updates allows."""

    version: int
    applied: bool
    staleness: int
    is_last: bool


class Client:
    """One worker's end of one optimizer. Between two calls nothing changes the replica.

    With `push_every` or `pull_every` above 1 (Dean et al. 2012, algorithm 7.1) the worker makes plain SGD steps on its
    own replica in between, and pushes the sum of its gradients.
    """

    def __init__(self, control: Control, worker: int, host: Host, replica: Replica, optimizer: Optimizer) -> None:
        self.host, self.replica, self.optimizer = host, replica, optimizer
        self._control, self._worker, self._words = control, worker, host.section.words
        settings, rule = control.settings, control.settings.rule
        self._clip = None if rule.gathers else settings.clip
        self._push_every, self._pull_every = rule.push_every, rule.pull_every
        self._groups, self._steps = len(optimizer.param_groups), 0
        self._sum: list[Tensor | None] = []
        self._sum_valid = False
        self._seq = max(self._words.begun[worker], *(shard.applied(worker) for shard in host.section.shards))
        self._bases: list[Newest] = []
        self._pulled = 0.0
        self._trace: WorkerTrace | None = None
        if settings.trace is not None:
            self._trace = WorkerTrace(settings.trace, host.section.number, worker, settings.shards)

    @property
    def version(self) -> int:
        """That of the replica; of the oldest shard, where they differ."""
        return min(base.version for base in self._bases)

    def begin(self) -> None:
        """Before the first gradient: wait until the rule lets this worker begin, then pull."""
        self.host.settle(self._worker)
        self.host.await_turn(self._worker)
        self.pull()

    def push(self, valid: bool = True) -> Pushed:
        """Hand in the gradients with the optimizer's present hyper-parameters, wait for the rule, pull.

        `valid` False: there is no usable gradient, and the worker only takes part.
        """
        if len(self.optimizer.param_groups) != self._groups:
            raise ValueError(
                "optimizer: a param group was added during training, which a parameter server does not "
                "support. Add all groups in configure_optimizers and freeze them by requires_grad."
            )
        started, waited = time.perf_counter(), self._waited()
        gradients, groups = self.replica.gradients(), self.optimizer.param_groups
        if self._clip is not None:
            clip_(self._clip, gradients)
        self._steps += 1
        usable = valid
        if self._push_every > 1:
            gradients, valid = self._summed(gradients, valid)
        verdict, staleness = Verdict.ADMIT, 0
        if self._steps % self._push_every == 0:
            verdict, staleness = self._push(gradients, groups, valid)
            self.host.await_turn(self._worker)
        if self._steps % self._pull_every == 0:
            self.pull()
        elif usable:
            self._own_step(groups)
        is_last = verdict is Verdict.END or self.host.section.door.is_over()
        self._communicated(started, waited)
        return Pushed(self.version, verdict is Verdict.ADMIT, staleness, is_last)

    def pull(self) -> int:
        """Make the replica the newest version; returns it (of the oldest shard, where they differ)."""
        self._bases = self.host.pull(self._worker)
        self._pulled = time.monotonic()
        self.replica.take(self._bases)
        return self.version

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """Version and optimizer state dict of this moment; the replica has its parameters, in memory of its own."""
        state, self._bases = {}, []
        for shard in self.host.section.shards:
            shard.words.lock.acquire(self.host.section.deadline_s)
            try:
                self._bases.append(shard.hold(self._worker))
                state.update(copy.deepcopy(shard.optimizer_state()))
            finally:
                shard.words.lock.release()
        self._pulled = time.monotonic()
        self.replica.take(self._bases)
        self.replica.privatise()
        groups = self.optimizer.state_dict()["param_groups"]
        return self.version, {"state": dict(sorted(state.items())), "param_groups": groups}

    def _push(self, gradients: list[Tensor | None], groups: Groups, valid: bool) -> tuple[Verdict, int]:
        self._seq += 1
        self._words.begun[self._worker] = self._seq
        if self._trace is not None:
            self._trace.note(self._seq, [base.version for base in self._bases], valid, groups)
        push = Push(self._worker, self._seq, self._bases, self._pulled, gradients, groups, valid)
        outcome = self.host.push(push)
        self.host.section.door.tick(self._worker)
        return outcome

    @torch.no_grad()
    def _summed(self, gradients: list[Tensor | None], valid: bool) -> tuple[list[Tensor | None], bool]:
        """The usable gradients since the last push, this one included, and whether there are any."""
        if self._steps % self._push_every == 1:
            self._sum, self._sum_valid = [None] * len(gradients), False
        if valid:
            self._sum_valid = True
            for place, gradient in enumerate(gradients):
                total = self._sum[place]
                if gradient is not None:
                    self._sum[place] = gradient.clone() if total is None else total.add_(gradient)
        return self._sum, self._sum_valid

    @torch.no_grad()
    def _own_step(self, groups: Groups) -> None:
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-float(group["lr"]))

    def _waited(self) -> float:
        return float(self._control.seconds[self._worker * ROW + WAIT])

    def _communicated(self, started: float, waited: float) -> None:
        spent = time.perf_counter() - started - (self._waited() - waited)
        self._control.seconds[self._worker * ROW + COMMUNICATE] += spent
