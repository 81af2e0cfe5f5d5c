"""The run's memory as one remote worker has it: room for the version that it holds and for the one that arrives.

Clients, replicas, codecs and local steps work in it as they do in the run's own memory. The shards' node decides about
gradients, waits and what is written down.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.memory.cow_mapping import CowMapping
from scalebook.training.engine.net.push_stream import has_push_stream
from scalebook.training.engine.rules.codecs import Fp32
from scalebook.training.engine.rules.contradictions import unfit_for_nodes
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.coded_traffic import CodedPulls
from scalebook.training.engine.store.optimizer_partition import (
    OptimizerPartition,
    allocate,
    make_partitions,
    plan_partitions,
)
from scalebook.training.engine.store.store_layout import Capacity, PartitionPlan, digest

VERSIONS: Final = 2
"""The version held and the one that arrives; a third where that may arrive before the second is held."""


class _OfOne(Capacity):
    """Memory of one worker with so many versions and no gradients."""

    def __init__(self, versions: int) -> None:
        self._versions = versions

    @override
    def buffers(self, settings: Settings, workers: int) -> int:
        return self._versions

    @override
    def slots(self, settings: Settings, workers: int, has_tables: bool) -> int:
        return 0


class Mirror(NamedTuple):
    """What one worker's process mirrors."""

    run: SharedRun
    plans: list[PartitionPlan]
    partitions: list[OptimizerPartition]
    lending: CowMapping | None


def refuse_far(settings: Settings) -> None:
    """ArgumentError for settings that do not work with workers on other nodes."""
    if error := unfit_for_nodes(settings.host):
        raise error


def mirrored(
    settings: Settings, workers: int, worker: int, optimizers: Sequence[Optimizer], deadline_s: float
) -> Mirror:
    """Allocate the mirror, empty."""
    given = replace(settings, trace=None, host="inline", pull_codec=Fp32())
    run = SharedRun(workers, given)
    plans = plan_partitions(run, optimizers, _OfOne(VERSIONS + has_push_stream(settings)))
    allocate(run, plans)
    return Mirror(run, plans, make_partitions(run, plans, optimizers, worker, deadline_s), CowMapping.of(run.memory))


def coded_pulls(
    plan: PartitionPlan, settings: Settings, worker: int, parameters: Sequence[Parameter]
) -> CodedPulls | None:
    """The decoder of versions that come as frames, the same on both sides; None if they come raw."""
    if not settings.pull_codec.codes:
        return None
    pulled = [torch.empty_like(parameter, device="cpu") for parameter in parameters]
    return CodedPulls(plan, settings.pull_codec, worker, pulled)


def settings_digest(settings: Settings) -> str:
    """A digest that is the same on all nodes of a run, wherever each would write its trace."""
    return hashlib.blake2b(repr(replace(settings, trace=None)).encode(), digest_size=16).hexdigest()


def plan_digest(plans: Sequence[PartitionPlan], settings: Settings) -> int:
    """A digest that is the same if shards and mirror lay out versions and states alike."""
    return digest(plans, replace(settings, trace=None))
