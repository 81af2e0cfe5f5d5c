"""How a worker joins: memory plans, shared memory, first parameters, clients."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import Membership, SharedRun
from scalebook.training.engine.memory.cow_mapping import CowMapping
from scalebook.training.engine.memory.device import Device
from scalebook.training.engine.memory.layout import with_dtype
from scalebook.training.engine.memory.region import ALLOCATED, DIGEST, STARTED, Control
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.codecs import rounded_to, stays_finite
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.store.hosts import Host, make_host
from scalebook.training.engine.store.optimizer_partition import (
    OptimizerPartition,
    allocate,
    make_partitions,
    plan_partitions,
)
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.state_discovery import discover
from scalebook.training.engine.store.store_layout import OF_PROCESSES, Capacity, PartitionPlan, digest
from scalebook.training.engine.store.table_optimizer import mark_tables
from scalebook.training.engine.worker.client import Client
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.engine.worker.local_client import LocalClient, LocalReplica
from scalebook.training.engine.worker.peer_client import peer_client
from scalebook.training.engine.worker.replica import Replica
from scalebook.training.engine.worker.worker_end import MemoryNeed
from scalebook.training.engine.worker_clock import Waits

DECODING: Final = 4
"""Copies of the parameters that a worker keeps to decode frames: the known values, and scratch memory, 3 at most."""


def need(
    plans: Sequence[PartitionPlan], optimizers: Sequence[Optimizer], control: Control, in_turn: bool = False
) -> MemoryNeed:
    """Bytes that the run takes, with all workers' `optimizers` planned so.

    If a GPU computes, each worker's gradients are gathered there, and land in memory of their own unless slots take
    them, rounded if the device rounds them; its parameters are a copy on the GPU. `in_turn`: one process has all
    workers, and each one's gradients land before the next computes.
    """
    settings, workers = control.settings, control.workers
    shards = [shard for plan in plans for shard in plan.shards]
    size, state = sum(shard.version_bytes for shard in shards), sum(shard.state_bytes for shard in shards)
    has_gpu = any(p.is_cuda for optimizer in optimizers for p in parameters_of(optimizer))
    frames = DECODING * size if settings.pull_codec.codes else 0
    sums = size if settings.local.n_push > 1 else 0
    computing = size if settings.own_replica or has_gpu else 0
    if settings.local.steps or settings.local.n_fetch > 1:
        computing += size  # what its last step made, to find writes of others
    if settings.local.steps:
        computing += sum(map(_state_bytes, optimizers))
    elif has_gpu:
        computing += _carried(plans, control, in_turn)
    if has_gpu and not in_turn:
        computing, sums = computing + sums, 0
    lands = settings.local.steps or settings.push_codec.codes or in_turn or not plans[0].slots
    if has_gpu:
        gradients = (size if settings.local.steps else _carried(plans, control, in_turn)) * workers if lands else 0
    else:
        gradients = size * control.clock.travelling(workers)
    own = frames + sums + (0 if has_gpu else computing)
    on_gpu = computing * (workers if in_turn else 1) if has_gpu else 0
    return MemoryNeed(size, plans[-1].end, gradients, state, workers * own, on_gpu)


def _carried(plans: Sequence[PartitionPlan], control: Control, in_turn: bool) -> int:
    """Bytes of one worker's gradients as gathered on the GPU, and where they land: 16 bits a number if the device
    rounds them (`Host.carry`). With fp16 the raw ones are there too, for values beyond its range."""
    codec = control.settings.push_codec
    whole = sum(plan.gradients.nbytes for plan in plans)
    halves = None if in_turn or any(plan.rows.nbytes for plan in plans) else rounded_to(codec)
    if halves is None:
        return whole
    rounded = sum(with_dtype(plan.gradients, getattr(torch, halves)).nbytes for plan in plans)
    return rounded if stays_finite(codec) else rounded + whole


def _state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the optimizer's state if a worker steps with it. 0 if trial steps cannot find it: state that belongs to
    no parameter, or changes its shape."""
    try:
        return sum(entry.example.nbytes for entry in discover(optimizer).entries)
    except ValueError:
        return 0


@dataclass
class ProcessShared:
    """What the workers of one process share: `plans`, `partitions` and `lending`, which the first to join fills, and
    classes of its parts, by default those of a process with one worker. `in_turn`: as in `need`."""

    capacity: Capacity = OF_PROCESSES
    partition_class: type[OptimizerPartition] = OptimizerPartition
    host: Callable[[OptimizerPartition], Host] = make_host
    joined: type[Joined] = Joined
    in_turn: bool = False
    plans: list[PartitionPlan] = field(default_factory=list)
    partitions: list[OptimizerPartition] = field(default_factory=list)
    lending: CowMapping | None = None


def join(
    run: SharedRun,
    membership: Membership,
    optimizers: Sequence[Optimizer],
    announce: Callable[[MemoryNeed], None] = lambda _: None,
    model: Module | None = None,
    device: Device | None = None,
) -> Joined:
    """Become a worker: called once in every worker, in parallel, with the same model and optimizers.

    The first parameters are those of worker 0. From here on the parameters of the optimizers are the clients' replicas,
    and the optimizers only provide their param groups. A restarted worker joins the run under way. Worker 0 calls
    `announce` with the memory that the run needs, before it is taken; it may raise. `model`: its embeddings with sparse
    gradients are shared by rows. `device`: by default the one that the parameters lie on.
    """
    if model is not None:
        mark_tables(model)
    joined = run.control.clock.play(join_waits(run, membership, optimizers, announce, device=device))
    if model is not None:
        joined.read_rows(model)
    return joined


def join_waits(
    run: SharedRun,
    membership: Membership,
    optimizers: Sequence[Optimizer],
    announce: Callable[[MemoryNeed], None] = lambda _: None,
    common: ProcessShared | None = None,
    stands_in: bool = False,
    device: Device | None = None,
) -> Waits[Joined]:
    """The waits of `join`. Workers of one process pass the same `common`: they share its shards and have parameters of
    their own. `stands_in`: as in `make_client`."""
    shared = ProcessShared() if common is None else common
    control, worker, late = run.control, membership.worker, membership.joins_late
    if not shared.plans:
        shared.plans += plan_partitions(run, optimizers, shared.capacity)
    plans, partitions = shared.plans, shared.partitions
    control.set_counter(worker, DIGEST, digest(plans, run.settings))
    if worker == 0 and not late:
        announce(need(plans, optimizers, control, shared.in_turn))
        allocate(run, plans)
        control.head[ALLOCATED] = 1
    yield from membership.rendezvous("memory")  # a late one too: the others may still wait at the next rendezvous
    if not control.head[ALLOCATED]:
        raise RuntimeError("worker 0 died before it had created the parameters, so there is nothing to train.")
    if not late:
        _compare(control, worker)
    if not partitions:
        partitions += make_partitions(
            run, plans, optimizers, worker, membership.deadline_s, device, shared.partition_class
        )
        shared.lending = CowMapping.of(run.memory)
    clients = []
    for partition, optimizer in zip(partitions, optimizers, strict=True):
        parameters = parameters_of(optimizer)
        if worker == 0 and not late:
            _initialise(partition, [p.detach() for p in parameters])
        clients.append(
            make_client(
                partition, shared.host(partition), worker, parameters, optimizer, shared.lending, late, stands_in
            )
        )
    if worker == 0 and not late:
        control.head[STARTED] = 1
        if run.settings.trace is not None:
            run.write_trace_head()
    yield from membership.rendezvous("first parameters")
    joined = shared.joined(run, membership, clients, late)
    for client in clients:
        yield from client.host.flush(
            worker
        )  # a server may still need what the last push of its former life was computed from
    joined.pull()
    if common is None:
        _give_back()
    return joined


def make_client(
    partition: OptimizerPartition,
    host: Host,
    worker: int,
    parameters: Sequence[Parameter],
    optimizer: Optimizer,
    lending: CowMapping | None,
    late: bool,
    stands_in: bool = False,
) -> Client:
    """`stands_in`: it pushes gradients of another process, so it makes no steps and decodes nothing itself."""
    control = partition.control
    if isinstance(control.settings.local, Peering):
        return peer_client(control.settings.local)(
            control, worker, host, LocalReplica(partition, parameters, worker), optimizer, late
        )
    if control.settings.local.steps and not stands_in:
        own = LocalClient(control, worker, host, LocalReplica(partition, parameters, worker), optimizer)
        own.is_late = late
        return own
    own_memory = control.settings.own_replica and not stands_in
    replica = Replica(partition, parameters, own_memory, lending, worker, decodes=not stands_in)
    if stands_in:
        host.transfer.stand_in()
    else:
        host.transfer.open(parameters)
    return Client(control, worker, host, replica, optimizer)


def _give_back() -> None:
    """Return freed memory to the system: the model's first parameters, the trials of `discover`. GNU's malloc keeps it,
    and training with larger blocks may never use it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _initialise(partition: OptimizerPartition, parameters: Sequence[Tensor]) -> None:
    for shard in partition.shards:
        shard.initialise([parameters[place] for place in shard.plan.parameters])


def _compare(control: Control, worker: int) -> None:
    mine = control.counter(worker, DIGEST)
    different = [other for other in control.living() if control.counter(other, DIGEST) != mine]
    if different:
        raise ArgumentError(
            "model-not-supported",
            "model",
            f"workers {[worker, *different]} have created different parameters or optimizers",
            "Create the same model in every worker, whatever its rank.",
        )
