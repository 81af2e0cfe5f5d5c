"""What memory a run takes while it trains, told before it is taken."""

from collections.abc import Sequence
from typing import Final

from torch.optim import Optimizer

from scalebook.training.ps.applying.plan import SectionPlan
from scalebook.training.ps.memory.region import Control
from scalebook.training.ps.optimizer.finding import discover
from scalebook.training.ps.worker.end import Need

DECODING: Final = 4
"""Copies of the parameters that a worker keeps to take them in frames: what it knows, and scratch memory, 3 at most."""


def need(plans: Sequence[SectionPlan], optimizers: Sequence[Optimizer], control: Control) -> Need:
    """Of all workers' `optimizers`, planned so."""
    settings = control.settings
    shards = [shard for plan in plans for shard in plan.shards]
    size, state = sum(shard.version_bytes for shard in shards), sum(shard.state_bytes for shard in shards)
    copies = int(settings.own_replica)
    copies += DECODING if settings.pull_codec.codes else 0
    copies += 1 if settings.rule.push_every > 1 else 0  # the sum of gradients
    own = copies * size
    if settings.local.steps:
        own += sum(map(_state_bytes, optimizers))
    gradients = control.clock.travelling(control.workers) * size
    return Need(size, plans[-1].end, gradients, state, control.workers * own)


def _state_bytes(optimizer: Optimizer) -> int:
    """What it will keep where a worker makes steps by it. 0 for one of which that cannot be found by trying, whose
    state belongs to no parameter or changes its shape."""
    try:
        return sum(entry.example.nbytes for entry in discover(optimizer).entries)
    except ValueError:
        return 0
