"""What memory a run takes while it trains, told before it is taken."""

from collections.abc import Sequence
from typing import Final

import torch
from torch.optim import Optimizer

from scalebook.training.ps.applying.plan import SectionPlan
from scalebook.training.ps.memory.layout import retyped
from scalebook.training.ps.memory.region import Control
from scalebook.training.ps.optimizer.finding import discover
from scalebook.training.ps.optimizer.rebuilding import parameters_of
from scalebook.training.ps.policy.codecs import rounded_to, stays_finite
from scalebook.training.ps.worker.end import Need

DECODING: Final = 4
"""Copies of the parameters that a worker keeps to take them in frames: what it knows, and scratch memory, 3 at most."""


def need(
    plans: Sequence[SectionPlan], optimizers: Sequence[Optimizer], control: Control, in_turn: bool = False
) -> Need:
    """Of all workers' `optimizers`, planned so. Where a GPU computes each worker's gradients are gathered there, and
    land in memory of their own unless slots take them, rounded where the device rounds them; its parameters are a copy
    on the GPU. `in_turn`: one process has all workers, and lands each one's gradients before the next computes."""
    settings, workers = control.settings, control.workers
    shards = [shard for plan in plans for shard in plan.shards]
    size, state = sum(shard.version_bytes for shard in shards), sum(shard.state_bytes for shard in shards)
    has_gpu = any(p.is_cuda for optimizer in optimizers for p in parameters_of(optimizer))
    frames = DECODING * size if settings.pull_codec.codes else 0
    sums = size if settings.local.n_push > 1 else 0
    computing = size if settings.own_replica or has_gpu else 0
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
    return Need(size, plans[-1].end, gradients, state, workers * own, on_gpu)


def _carried(plans: Sequence[SectionPlan], control: Control, in_turn: bool) -> int:
    """Bytes of one worker's gradients as they are gathered on the GPU, and where they land: 16 bits a number where the
    device rounds them (`Host.carry`). In fp16 as they are besides, for those beyond its range."""
    codec = control.settings.push_codec
    whole = sum(plan.gradients.nbytes for plan in plans)
    halves = None if in_turn or any(plan.rows.nbytes for plan in plans) else rounded_to(codec)
    if halves is None:
        return whole
    rounded = sum(retyped(plan.gradients, getattr(torch, halves)).nbytes for plan in plans)
    return rounded if stays_finite(codec) else rounded + whole


def _state_bytes(optimizer: Optimizer) -> int:
    """What it will keep where a worker makes steps by it. 0 for one of which that cannot be found by trying, whose
    state belongs to no parameter or changes its shape."""
    try:
        return sum(entry.example.nbytes for entry in discover(optimizer).entries)
    except ValueError:
        return 0
