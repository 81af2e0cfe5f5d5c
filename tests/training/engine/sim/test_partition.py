"""The sum of a round of simulated workers, beside slots that keep each gradient."""

import random

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.engine.sim.sim_workers import SimulatedCapacity, SimulatedPartition, SummedSlots
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition, make_partitions, plan_partitions
from scalebook.training.engine.store.store_layout import OF_PROCESSES, Capacity
from scalebook.training.engine.trace import Origin

WORKERS = 7
SHAPES = [(5, 3), (4,), (2, 2)]


def partition(capacity: Capacity, kind: type[OptimizerPartition]) -> OptimizerPartition:
    run = SharedRun(WORKERS, Settings(Sync()))
    optimizer = SGD([Parameter(torch.zeros(shape)) for shape in SHAPES], lr=0.1)
    plans = plan_partitions(run, [optimizer], capacity)
    run.memory.allocate(plans[-1].end)
    (made,) = make_partitions(run, plans, [optimizer], 0, 5.0, kind=kind)
    return made


@pytest.mark.parametrize("seed", range(6))
def test_the_mean_is_that_of_slots_to_the_last_bit(seed: int) -> None:
    kept, summed = partition(OF_PROCESSES, OptimizerPartition), partition(SimulatedCapacity(), SimulatedPartition)
    assert kept.plan.slots == WORKERS
    assert isinstance(summed.slots, SummedSlots)
    assert summed.plan.slots == 1
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(3):
        slots = draw.sample(range(WORKERS), draw.randint(1, WORKERS))
        for number, slot in enumerate(slots):
            gradients: list[Tensor | None] = [torch.randn(s) if draw.random() < 0.8 else None for s in SHAPES]
            groups, valid = [{"lr": draw.random(), "params": []}], number == 0 or draw.random() < 0.8
            for one in (kept, summed):
                one.slots.write(slot, [Origin(slot, 1, 0, 0, 0.0)], gradients, groups, valid)
                one.slots.gather(slot, first=number == 0)
        places, is_sum = range(len(SHAPES)), draw.random() < 0.3
        theirs, ours = (one.slots.average(slots, places, is_sum) for one in (kept, summed))
        assert ours.groups == theirs.groups
        for mine, other in zip(ours.gradients, theirs.gradients, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None and other is not None:
                assert torch.equal(mine, other)
