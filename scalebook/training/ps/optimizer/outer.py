"""The optimizer of shards whose workers make steps by themselves: it takes how far these have led as a gradient."""

from collections.abc import Sequence

from torch.optim import SGD, Optimizer

from scalebook.training.ps.optimizer.rebuilding import parameters_of
from scalebook.training.ps.policy.settings import Settings


def applied(optimizer: Optimizer, settings: Settings, workers: int) -> Optimizer:
    """What makes the updates: the worker's optimizer, or where it makes local steps an outer one, over the same
    parameters."""
    local = settings.local
    if not local.steps:
        return optimizer
    rate = local.rate(settings.most(workers), workers, settings.rule.synchronous)
    momentum = local.outer_momentum
    return SGD(parameters_of(optimizer), lr=rate, momentum=momentum, nesterov=local.nesterov and momentum > 0)


def all_applied(optimizers: Sequence[Optimizer], settings: Settings, workers: int) -> list[Optimizer]:
    """Of each optimizer."""
    return [applied(optimizer, settings, workers) for optimizer in optimizers]
