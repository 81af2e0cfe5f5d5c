"""One optimizer in one process: its admission, its shards, its slots."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from torch.optim import SGD, Optimizer

from scalebook.training.engine.coordination.admission import Admission
from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.memory.device import Device, Registered, device_of
from scalebook.training.engine.memory.region import MOST_OPTIMIZERS, Control
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.coded_traffic import CodedPushes
from scalebook.training.engine.store.peer_room import PeerRoom
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.rounds import Rounds
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.slots import Slots
from scalebook.training.engine.store.store_layout import OF_PROCESSES, Capacity, PartitionPlan, plan_partition
from scalebook.training.engine.trace import ShardTrace


def applied(optimizer: Optimizer, settings: Settings, workers: int) -> Optimizer:
    """The optimizer that makes the updates: the worker's, or an outer one over the same parameters if workers make
    local steps."""
    local = settings.local
    if not local.steps:
        return optimizer
    rate = local.rate(settings.most(workers), workers, settings.rule.synchronous)
    momentum = local.outer_momentum
    return SGD(parameters_of(optimizer), lr=rate, momentum=momentum, nesterov=local.nesterov and momentum > 0)


def all_applied(optimizers: Sequence[Optimizer], settings: Settings, workers: int) -> list[Optimizer]:
    """`applied` of each optimizer."""
    return [applied(optimizer, settings, workers) for optimizer in optimizers]


class OptimizerPartition:
    """What hosts and servers work with. `first_shard`: the shard that this process begins with."""

    forgets: ClassVar[bool] = True
    """Whether the log of a table's rows may drop rows that somebody still needs."""
    times_workers: ClassVar[bool] = True
    """Whether workers' own times are measured here."""

    def __init__(
        self, number: int, plan: PartitionPlan, memory: Tensor, control: Control, optimizer: Optimizer,
        first_shard: int, deadline_s: float, row_memory: Tensor | None = None, device: Device | None = None,
    ) -> None:  # fmt: skip
        """`device`: the worker's, by default the one that the parameters lie on."""
        settings, counters = control.settings, control.partition_counters[number]
        self.number, self.plan, self.counters, self.optimizer = number, plan, counters, optimizer
        self.device = device_of(parameters_of(optimizer)) if device is None else device
        self.registered = Registered()  # `memory`, that of all partitions
        self.control, self.deadline_s = control, deadline_s
        traces: list[ShardTrace | None] = [None] * len(plan.shards)
        if settings.trace is not None:
            most = settings.most(control.workers)
            traces = [ShardTrace(settings.trace, number, shard, most) for shard in range(len(plan.shards))]
        self.shards = [
            Shard(
                shard_plan, memory, counters.shards[i], optimizer, settings, deadline_s, traces[i], control.clock.now,
                row_memory, self.forgets,
            )
            for i, shard_plan in enumerate(plan.shards)
        ]  # fmt: skip
        self.room: PeerRoom | None = None
        """Where workers exchange with each other, if they do."""
        if isinstance(settings.local, Peering):
            self.room = PeerRoom(control, counters, self.shards[0], settings.local, deadline_s, first_shard)
        self.admission = self._admission()
        self.slots = self._slots(memory, row_memory)
        codec = settings.push_codec
        self.coded = CodedPushes(number, plan, memory, counters, codec) if codec.codes else None
        self.rounds = Rounds(
            self.admission, self.slots, self.shards, settings.engine_clip, first_shard % len(plan.shards), deadline_s
        )

    def _admission(self) -> Admission:
        return Admission(self.control, self.number, self.deadline_s)

    def _slots(self, memory: Tensor, row_memory: Tensor | None) -> Slots:
        return Slots(self.plan, memory, self.control, self.number, row_memory)

    @property
    def order(self) -> Sequence[int]:
        """The shards, in the order in which this process visits them."""
        return self.rounds.order


def plan_partitions(
    run: SharedRun, optimizers: Sequence[Optimizer], capacity: Capacity = OF_PROCESSES
) -> list[PartitionPlan]:
    """Plan the memory of all optimizers, one after the other."""
    if not 1 <= len(optimizers) <= MOST_OPTIMIZERS:
        raise ArgumentError(
            "model-not-supported",
            "model",
            f"configure_optimizers returned {len(optimizers)} optimizers",
            f"Return 1 to {MOST_OPTIMIZERS}.",
        )
    plans: list[PartitionPlan] = []
    start = rows_start = 0
    for optimizer in all_applied(optimizers, run.settings, run.control.workers):
        others = [p for other in optimizers for p in parameters_of(other)] if len(optimizers) > 1 else []
        own = set(map(id, parameters_of(optimizer)))
        others = [p for p in others if id(p) not in own]
        plans.append(plan_partition(optimizer, run.settings, run.control.workers, start, rows_start, capacity, others))
        start, rows_start = plans[-1].end, plans[-1].rows_end
    return plans


def allocate(run: SharedRun, plans: Sequence[PartitionPlan]) -> None:
    """Allocate the planned memory; in one process. OSError if there is too little."""
    run.memory.allocate(plans[-1].end)
    run.row_memory.reserve(plans[-1].rows_end)


def make_partitions(
    run: SharedRun, plans: Sequence[PartitionPlan], optimizers: Sequence[Optimizer], first_shard: int,
    deadline_s: float, device: Device | None = None, kind: type[OptimizerPartition] = OptimizerPartition,
) -> list[OptimizerPartition]:  # fmt: skip
    """All partitions of this process, over the run's memory. `first_shard`: the shard to begin with. `device`: as in
    `OptimizerPartition`."""
    memory = run.memory.map()
    row_memory = run.row_memory.map() if plans[-1].rows_end else None
    for counters in run.control.partition_counters[: len(plans)]:
        counters.used[0] = 1
    pairs = zip(plans, all_applied(optimizers, run.settings, run.control.workers), strict=True)
    partitions = [
        kind(i, plan, memory, run.control, optimizer, first_shard, deadline_s, row_memory, device)
        for i, (plan, optimizer) in enumerate(pairs)
    ]
    register(partitions, memory)
    return partitions


def register(partitions: Sequence[OptimizerPartition], memory: Tensor) -> None:
    """Let the device of this process copy from and to `memory`, which these partitions lie in."""
    device = next((partition.device for partition in partitions if not partition.device.is_host), None)
    if device is not None:
        registered = device.register(memory)
        for partition in partitions:
            partition.registered = registered
