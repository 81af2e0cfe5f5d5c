"""The run's memory as one worker on another machine has it: room for the version that it holds, and what comes.

Clients, replicas, codecs and local steps work in it as they do in the run's own. What becomes of a gradient, who waits,
and what is written down is decided where the shards are.
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
from scalebook.training.engine.net.push_stream import has_lane
from scalebook.training.engine.rules.codecs import Fp32
from scalebook.training.engine.rules.contradictions import FAR, Contradiction
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.coded_traffic import CodedPulls
from scalebook.training.engine.store.optimizer_partition import (
    OptimizerPartition,
    allocate,
    make_sections,
    plan_sections,
)
from scalebook.training.engine.store.store_layout import Capacity, PartitionPlan, digest

VERSIONS: Final = 2
"""The one that is held, and the one that comes; a third where it may come before the second is held."""


class _OfOne(Capacity):
    """One worker has this memory, with so many versions and no gradients."""

    def __init__(self, versions: int) -> None:
        self._versions = versions

    @override
    def buffers(self, settings: Settings, workers: int) -> int:
        return self._versions

    @override
    def slots(self, settings: Settings, workers: int, has_tables: bool) -> int:
        return 0


class Mirror(NamedTuple):
    """Of one worker's process."""

    run: SharedRun
    plans: list[PartitionPlan]
    sections: list[OptimizerPartition]
    lending: CowMapping | None


def refuse_far(settings: Settings) -> None:
    """ValueError, naming key and remedy, for what workers on other machines cannot do yet."""
    for refusal in FAR:
        if getattr(settings, refusal.key) == refusal.value:
            raise Contradiction(*refusal[:3]).error()


def mirrored(
    settings: Settings, workers: int, worker: int, optimizers: Sequence[Optimizer], deadline_s: float
) -> Mirror:
    """Take the memory, with nothing in it."""
    given = replace(settings, trace=None, host="inline", pull_codec=Fp32())
    run = SharedRun(workers, given)
    plans = plan_sections(run, optimizers, _OfOne(VERSIONS + has_lane(settings)))
    allocate(run, plans)
    return Mirror(run, plans, make_sections(run, plans, optimizers, worker, deadline_s), CowMapping.of(run.memory))


def coded_pulls(
    plan: PartitionPlan, settings: Settings, worker: int, parameters: Sequence[Parameter]
) -> CodedPulls | None:
    """What a worker knows of the versions, on both sides the same, where they travel as frames."""
    if not settings.pull_codec.codes:
        return None
    pulled = [torch.empty_like(parameter, device="cpu") for parameter in parameters]
    return CodedPulls(plan, settings.pull_codec, worker, pulled)


def settings_digest(settings: Settings) -> str:
    """The same on all machines of a run, wherever each would write its trace."""
    return hashlib.blake2b(repr(replace(settings, trace=None)).encode(), digest_size=16).hexdigest()


def plan_digest(plans: Sequence[PartitionPlan], settings: Settings) -> int:
    """The same where shards and mirror lay out versions and states alike."""
    return digest(plans, replace(settings, trace=None))
