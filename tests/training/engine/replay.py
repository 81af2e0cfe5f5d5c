"""Makes a traced run again, in one process: the same updates in the same order give the same weights, bit for bit."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.optimizer_partition import (
    OptimizerPartition,
    allocate,
    make_partitions,
    plan_partitions,
)
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.rounds import clip_
from scalebook.training.engine.store.slots import mean
from scalebook.training.engine.store.table_shard import Tables
from scalebook.training.engine.trace import Head, Origin, Record, read_head, read_hyper, read_pushes, read_updates

ComputeGradient = Callable[[int, int], None]
"""`compute(worker, seq)`: put the gradient of that push, on its batch, into the `grad` of the parameters."""


class Key(NamedTuple):
    """One push."""

    worker: int
    seq: int


def replay(folder: Path, settings: Settings, optimizer: Optimizer, compute: ComputeGradient) -> None:
    """Make the updates in the trace `folder` again, on the parameters of `optimizer`, which hold the run's initial
    values.

    `settings` are those of the run. Each gradient is computed on parameters of the versions that it was computed from
    in the run; memory holds the versions that are still needed. ValueError unless there is one optimizer that pushes
    every gradient.
    """
    head = read_head(folder)
    if len(head.last) != 1 or settings.local.sums:
        raise ValueError(f"{folder}: only one optimizer that pushes and pulls every gradient can be replayed")
    if settings.local.steps:
        raise ValueError(f"{folder}: a run with local steps ({settings.local!r}) cannot be replayed")
    if settings.pull_codec.codes:
        raise ValueError(f"{folder}: a run with pull_codec {settings.pull_codec!r} cannot be replayed")
    if head.rule != repr(settings.rule) or head.damping != repr(settings.damping):
        raise ValueError(f"{folder}: this is a trace of {head.rule} with {head.damping}, not of these settings")
    if head.push_codec not in ("", repr(settings.push_codec)):
        raise ValueError(f"{folder}: this is a trace of pushes by {head.push_codec}, not by {settings.push_codec!r}")
    run = SharedRun(head.workers, replace(settings, host="inline", trace=None, drift=False))
    plans = plan_partitions(run, [optimizer])
    allocate(run, plans)
    (partition,) = make_partitions(run, plans, [optimizer], 0, 1.0)
    _Replay(folder, settings, partition, head, compute).run()
    run.close()


class _Replay:
    def __init__(
        self, folder: Path, settings: Settings, partition: OptimizerPartition, head: Head, compute: ComputeGradient
    ) -> None:
        self._settings, self._partition, self._compute = settings, partition, compute
        self._parameters, self._first = parameters_of(partition.optimizer), head.first[0]
        self._pushes = {
            Key(worker, seq): pushed
            for worker in range(head.workers)
            for seq, pushed in read_pushes(folder, 0, worker, head.shards).items()
        }
        self._hyper = [read_hyper(folder, 0, worker) for worker in range(head.workers)]
        self._updates = [
            list(read_updates(folder, 0, shard, head.most, self._first + 1, last))
            for shard, last in enumerate(head.last[0])
        ]
        used = {Key(r.worker, r.seq) for updates in self._updates for update in updates for r in update}
        self._base_uses = Counter((s, base) for key in used for s, base in enumerate(self._pushes[key][1]))
        self._gradient_uses = Counter(Key(r.worker, r.seq) for us in self._updates for u in us for r in u)
        self._tables = {table.place for table in partition.plan.tables}
        self._versions: dict[tuple[int, int], list[Tensor]] = {}
        self._gradients: dict[Key, list[Tensor | None]] = {}

    def run(self) -> None:
        for number, shard in enumerate(self._partition.shards):
            shard.initialise([self._parameters[place].detach() for place in shard.plan.parameters])
            if self._first:
                shard.restore(self._first, {})
            self._keep(number)
        self._lend_tables()
        while any(self._updates):
            before = sum(map(len, self._updates))
            for number, updates in enumerate(self._updates):
                while updates and all(self._gradient(Key(r.worker, r.seq)) for r in updates[0]):
                    self._apply(number, updates.pop(0))
            assert sum(map(len, self._updates)) < before, "the trace has an update that no gradient can lead to"
        for shard in self._partition.shards:
            for place, view in zip(shard.plan.parameters, shard.views[shard.newest().buffer], strict=True):
                if place not in self._tables:
                    self._parameters[place].data = view.clone()

    def _lend_tables(self) -> None:
        """Make the shared tables the parameters, as of the version that is needed (`tables_as_of`)."""
        for shard in self._partition.shards:
            for table in shard.plan.tables:
                assert shard.tables is not None
                self._parameters[table.place].data = shard.tables.weight(table.index)

    def _keep(self, number: int) -> None:
        shard = self._partition.shards[number]
        if self._base_uses[number, shard.version]:
            self._versions[number, shard.version] = [view.clone() for view in shard.views[shard.newest().buffer]]
        if shard.tables is not None:
            needed = [version for of, version in self._versions if of == number]
            shard.counters.bases[0] = min(needed, default=shard.version)

    def _gradient(self, key: Key) -> bool:
        """Whether the gradient of a push is there; computes it as soon as its versions are."""
        if key in self._gradients:
            return True
        bases = list(enumerate(self._pushes[key][1]))
        if any(base not in self._versions for base in bases):
            return False
        for number, version in bases:
            places = self._partition.shards[number].plan.parameters
            for place, tensor in zip(places, self._versions[number, version], strict=True):
                if place not in self._tables:
                    self._parameters[place].data = tensor.clone()
        for parameter in self._parameters:
            parameter.grad = None
        with ExitStack() as versions:
            for number, version in bases:
                tables = self._partition.shards[number].tables
                if tables is not None:
                    versions.enter_context(tables_as_of(tables, version))
            self._compute(key.worker, key.seq)
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in self._parameters]
        gradients = [g.coalesce() if g is not None and g.is_sparse else g for g in gradients]
        if self._settings.clip is not None and not self._settings.rule.gathers:
            clip_(self._settings.clip, gradients)
        coded = self._partition.coded
        if coded is not None and self._pushes[key][0]:
            decoded = coded.decode(coded.encode(key.worker, key.seq, gradients))
            gradients = [None if gradient is None else gradient.clone() for gradient in decoded]
            coded.store_residual(key.worker, key.seq)
        self._gradients[key] = gradients
        return True

    @torch.no_grad()
    def _apply(self, number: int, update: list[Record]) -> None:
        shard, keys = self._partition.shards[number], [Key(r.worker, r.seq) for r in update]
        buffer = self._put_base(number, keys[0]) if self._settings.damping.compensates else shard.newest().buffer
        origins = [Origin(r.worker, r.seq, r.base_version, buffer, 0.0) for r in update]
        gradients = self._averaged(keys) if self._settings.rule.gathers else self._gradients[keys[0]]
        mine = [gradients[place] for place in shard.plan.parameters]
        applied = shard.apply(origins, mine, self._groups(keys[-1]), pusher=0)  # whose base is for this update alone
        assert applied, f"push {keys[0]} is in the trace twice"
        self._keep(number)
        for key in keys:
            self._forget(key)

    def _averaged(self, keys: list[Key]) -> list[Tensor | None]:
        valid = [self._gradients[key] for key in keys if self._pushes[key][0]]
        places = range(len(self._parameters))
        means = [mean([g for gradient in valid if (g := gradient[i]) is not None], len(valid)) for i in places]
        if self._settings.clip is not None:
            clip_(self._settings.clip, means)
        return means

    def _put_base(self, number: int, key: Key) -> int:
        """Write the version that a gradient was computed from into a buffer, for delay compensation; returns the
        buffer's number."""
        shard = self._partition.shards[number]
        buffer = (shard.newest().buffer + 1) % len(shard.views)
        for view, tensor in zip(shard.views[buffer], self._versions[number, self._pushes[key][1][number]], strict=True):
            view.copy_(tensor)
        shard.counters.held[0] = buffer
        return buffer

    def _groups(self, key: Key) -> Groups:
        return next(groups for seq, groups in reversed(self._hyper[key.worker]) if seq <= key.seq)

    def _forget(self, key: Key) -> None:
        self._gradient_uses[key] -= 1
        if self._gradient_uses[key]:
            return
        del self._gradients[key]
        for base in enumerate(self._pushes[key][1]):
            self._base_uses[base] -= 1
            if not self._base_uses[base]:
                del self._versions[base]


@contextmanager
def tables_as_of(tables: Tables, version: int) -> Iterator[None]:
    """Within the context the tables are those of an older version, in place; only if nobody else reads them."""
    changed = [tables.since(version, number) for number in range(len(tables.plans))]
    now = [columns[0][rows] for columns, rows in zip(tables.columns, changed, strict=True)]
    then = [tables.read(number, rows, version) for number, rows in enumerate(changed)]
    for values in (then, now):
        for columns, rows, one in zip(tables.columns, changed, values, strict=True):
            columns[0].index_copy_(0, rows, one)
        if values is then:
            yield
