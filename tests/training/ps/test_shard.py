"""Two Shard objects over one memory stand for two processes: what one applies, the other must go on from."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from tests.training.ps.custom_optimizers import NoneAtFirst, PythonNumbers, Rebinding
from training.ps.region import Control
from training.ps.shard import Shard, plan_shard

Make = Callable[[Any], Optimizer]


def groups(parameters: list[Parameter]) -> list[dict[str, Any]]:
    return [{"params": parameters[:1], "lr": 0.2}, {"params": parameters[1:]}]


OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=0.05, fused=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "two groups": lambda p: torch.optim.Adam(groups(p), lr=0.01),
    "Python numbers": PythonNumbers,
    "rebinding": Rebinding,
    "None at first": NoneAtFirst,
}


def parameters() -> list[Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 4), (4,), (2, 2, 2)]
    return [Parameter(torch.randn(*shape, generator=generator)) for shape in shapes]


def gradients(step: int) -> list[Tensor | None]:
    """The third parameter has no gradient at first, and none in every fourth step."""
    generator = torch.Generator().manual_seed(100 + step)
    made: list[Tensor | None] = [torch.randn(p.shape, generator=generator) for p in parameters()]
    return [*made[:2], None if step < 3 or step % 4 == 0 else made[2]]


def plain_run(make: Make, steps: int) -> tuple[list[Parameter], dict[str, Any]]:
    mine = parameters()
    optimizer = make(mine)
    for step in range(steps):
        for parameter, gradient in zip(mine, gradients(step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return mine, optimizer.state_dict()


def two_shards(make: Make) -> tuple[list[Shard], Optimizer]:
    given = make(parameters())
    plan = plan_shard(given)
    memory, control = torch.zeros(plan.nbytes, dtype=torch.uint8), Control(workers=2)
    shards = [Shard(plan, memory, given, control) for _ in range(2)]
    flat = torch.zeros_like(shards[0].flat)
    for view, parameter in zip(plan.parameters.views(flat), parameters(), strict=True):
        view.copy_(parameter.detach())
    shards[0].initialise(flat)
    return shards, given


def assert_same(shard: Shard, expected: list[Parameter], state: dict[str, Any]) -> None:
    for mine, other in zip(shard.parameters, expected, strict=True):
        assert torch.equal(mine, other)
    torch.testing.assert_close(shard.snapshot().optimizer["state"], state["state"], rtol=0, atol=0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_processes_in_turn_give_what_one_gives_bit_for_bit(name: str) -> None:
    make = OPTIMIZERS[name]
    shards, given = two_shards(make)
    order = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1]
    for step, turn in enumerate(order):
        shards[turn].apply(gradients(step), given.param_groups)
    expected, state = plain_run(make, len(order))
    for shard in shards:
        assert shard.version == len(order)
        assert_same(shard, expected, state)


@pytest.mark.parametrize("name", ["momentum", "Adam", "Adagrad", "Python numbers", "rebinding"])
def test_a_restored_shard_goes_on_as_if_nothing_had_happened(name: str) -> None:
    make = OPTIMIZERS[name]
    (first, _), given = two_shards(make)
    for step in range(5):
        first.apply(gradients(step), given.param_groups)
    taken = first.snapshot()
    (second, third), given = two_shards(make)
    second.initialise(taken.flat)
    second.restore(taken.version, taken.optimizer)
    assert third.version == 5
    for step in range(5, 9):
        (second, third)[step % 2].apply(gradients(step), given.param_groups)
    assert_same(third, *plain_run(make, 9))


def test_hyper_parameters_are_those_of_the_worker_that_pushes() -> None:
    shards, given = two_shards(OPTIMIZERS["SGD"])
    ones: list[Tensor | None] = [torch.ones_like(p) for p in shards[0].parameters]
    before = shards[0].parameters[0].detach().clone()
    shards[0].apply(ones, [{"lr": 1.0}])
    shards[1].apply(ones, [{"lr": 0.5}])
    torch.testing.assert_close(before - shards[0].parameters[0], torch.full((3, 4), 1.5))
    assert given.param_groups[0]["lr"] == 0.1


def test_a_snapshot_is_private() -> None:
    (shard, _), given = two_shards(OPTIMIZERS["momentum"])
    shard.apply(gradients(5), given.param_groups)
    taken = shard.snapshot()
    flat, state = taken.flat.clone(), taken.optimizer["state"][0]["momentum_buffer"].clone()
    shard.apply(gradients(6), given.param_groups)
    assert taken.version == 1
    assert torch.equal(taken.flat, flat)
    assert torch.equal(taken.optimizer["state"][0]["momentum_buffer"], state)


def test_state_that_changes_its_type_during_the_run_is_named() -> None:
    class Turncoat(PythonNumbers):
        def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
            state["step"] = 0.5 if state.get("step") == 5 else state.get("step", 0) + 1

    (shard, _), given = two_shards(Turncoat)
    for step in range(5):
        shard.apply(gradients(step), given.param_groups)
    with pytest.raises(TypeError, match="optimizer: Turncoat changed type or shape of its state 'step'"):
        shard.apply(gradients(5), given.param_groups)


def test_plans_differ_when_models_differ() -> None:
    plans = [plan_shard(OPTIMIZERS[name](parameters())).digest() for name in ("SGD", "SGD", "momentum", "Adam")]
    assert plans[0] == plans[1]
    assert len(set(plans)) == 3


def test_mixed_types_lie_in_one_memory() -> None:
    given = torch.optim.SGD([Parameter(torch.ones(3).bfloat16()), Parameter(torch.ones(2).double())], lr=1.0)
    plan, control = plan_shard(given), Control(workers=1)
    shard = Shard(plan, torch.zeros(plan.nbytes, dtype=torch.uint8), given, control)
    shard.apply([torch.ones(3).bfloat16(), torch.full((2,), 0.1, dtype=torch.float64)], given.param_groups)
    assert shard.parameters[0].tolist() == [-1.0] * 3
    assert shard.parameters[1].tolist() == [-0.1] * 2
