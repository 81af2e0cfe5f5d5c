"""Two Shard objects over one memory stand for two processes: what one applies, the other must go on from."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine import Settings
from scalebook.training.engine.memory.region import DUPLICATES, METER, Control
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.store_layout import PartitionPlan, digest, plan_partition
from scalebook.training.engine.trace import Origin
from tests.training.engine.custom_optimizers import (
    CountsInGroups,
    Elsewhere,
    Estimating,
    NoneAtFirst,
    PythonNumbers,
    Rebinding,
    Worded,
)

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
    "count in groups": CountsInGroups,
    "elsewhere": Elsewhere,
    "lists and dicts": Worded,
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


class Pair:
    """The same shards as two processes see them; `apply` is one update of all of them, by one process."""

    def __init__(self, given: Optimizer, count: int = 1, workers: int = 2) -> None:
        self.given, settings = given, Settings(shards=count)
        self.plan = plan_partition(given, settings, workers)
        memory, self.control = torch.zeros(self.plan.end, dtype=torch.uint8), Control(workers, settings)
        counters = self.control.partition_counters[0].shards
        self.sides = [
            [Shard(plan, memory, counters[i], given, settings, 10.0) for i, plan in enumerate(self.plan.shards)]
            for _ in range(2)
        ]
        self.seq = 0
        for shard in self.sides[0]:
            shard.initialise([p.detach() for p in self.chosen(shard, parameters_of(given))])

    def chosen(self, shard: Shard, whole: Sequence[Any]) -> list[Any]:
        return [whole[place] for place in shard.plan.parameters]

    def apply(self, side: int, step: Sequence[Tensor | None], groups: Sequence[dict[str, Any]] | None = None) -> None:
        self.seq += 1
        for shard in self.sides[side]:
            origin = Origin(0, self.seq, shard.version, shard.newest().buffer, 0.0)
            assert shard.apply([origin], self.chosen(shard, step), groups or self.given.param_groups)

    def weights(self, side: int) -> list[Tensor]:
        return [view for shard in self.sides[side] for view in shard.views[shard.newest().buffer]]

    def state(self, side: int) -> dict[int, Any]:
        return {k: v for shard in self.sides[side] for k, v in shard.optimizer_state().items()}


def assert_same(pair: Pair, side: int, expected: list[Parameter], state: dict[str, Any]) -> None:
    for mine, other in zip(pair.weights(side), expected, strict=True):
        assert torch.equal(mine, other)
    assert same(pair.state(side), state["state"])


def same(mine: Any, other: Any) -> bool:
    if isinstance(mine, Tensor):
        return torch.equal(mine, other)
    if isinstance(mine, dict):
        return mine.keys() == other.keys() and all(same(value, other[key]) for key, value in mine.items())
    if isinstance(mine, list):
        return len(mine) == len(other) and all(map(same, mine, other))
    return bool(mine == other)


@pytest.mark.each_value
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_processes_in_turn_give_what_one_gives_bit_for_bit(name: str, count: int) -> None:
    check_two_processes_in_turn(OPTIMIZERS[name], count)


def check_two_processes_in_turn(make: Make, count: int) -> None:
    """Two processes apply gradients to so many shards; the result is that of one process, bit for bit."""
    pair = Pair(make(parameters()), count)
    order = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1]
    for step, turn in enumerate(order):
        pair.apply(turn, gradients(step))
    expected, state = plain_run(make, len(order))
    for side in (0, 1):
        assert [shard.version for shard in pair.sides[side]] == [len(order)] * count
        assert_same(pair, side, expected, state)


def test_what_a_step_has_made_of_its_groups_counts_and_no_stale_copy() -> None:
    """`late` and `factor` change in the fifth step first: a worker that has not seen that has the setting."""
    pair, plain = Pair(Estimating(parameters())), Estimating(parameters())
    rate: list[dict[str, Any]] = [{"params": [], "lr": 1.0}]
    for step in range(7):
        pair.apply(step % 2, gradients(step), [{**rate[0], "factor": 1.0}] if step < 5 else rate)
    pair.seq += 1
    (shard,) = pair.sides[0]
    stale = Origin(1, 1, 4, shard.newest().buffer, 0.0)
    assert shard.apply([stale], gradients(7), [{**rate[0], "factor": 1.0}])
    for step in range(8):
        for parameter, gradient in zip(parameters_of(plain), gradients(step), strict=True):
            parameter.grad = gradient
        plain.step()
    assert_same(pair, 1, parameters_of(plain), plain.state_dict())
    pair.apply(1, gradients(8), [{**rate[0], "d": 0.0, "factor": 0.5}])  # somebody who has seen it sets it
    other = pair.sides[0][0]
    other.optimizer_state()
    (group,) = other.optimizer.param_groups
    assert (group["seen"], group["d"], float(group["late"]), group["factor"]) == (9, 0.0, 0.0, 0.5)


@pytest.mark.each_value
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", ["momentum", "Adam", "Adagrad", "Python numbers", "rebinding", "lists and dicts"])
def test_a_restored_shard_goes_on_as_if_nothing_had_happened(name: str, count: int) -> None:
    make = OPTIMIZERS[name]
    first = Pair(make(parameters()), count)
    for step in range(5):
        first.apply(0, gradients(step))
    again = make(parameters())
    for parameter, weight in zip(parameters_of(again), first.weights(0), strict=True):
        parameter.data = weight.clone()
    second = Pair(again, count)
    for shard in second.sides[0]:
        shard.restore(5, copy.deepcopy(first.state(0)))
    assert second.sides[1][0].version == 5
    for step in range(5, 9):
        second.apply(step % 2, gradients(step))
    assert_same(second, 1, *plain_run(make, 9))


def test_hyper_parameters_are_those_of_the_worker_that_pushes() -> None:
    given = OPTIMIZERS["SGD"](parameters())
    pair = Pair(given)
    ones: list[Tensor | None] = [torch.ones_like(p) for p in parameters()]
    before = pair.weights(0)[0].clone()
    for side, lr in enumerate((1.0, 0.5)):
        pair.apply(side, ones, [{**given.param_groups[0], "lr": lr}])
    torch.testing.assert_close(before - pair.weights(0)[0], torch.full((3, 4), 1.5))
    assert given.param_groups[0]["lr"] == 0.1


def test_a_version_that_somebody_holds_is_never_changed() -> None:
    pair = Pair(OPTIMIZERS["momentum"](parameters()))
    (shard,) = pair.sides[0]
    pair.apply(0, gradients(5))
    held = shard.pin(1)
    before = [view.clone() for view in shard.views[held.buffer]]
    for step in range(6, 20):
        pair.apply(step % 2, gradients(step))
    assert all(torch.equal(a, b) for a, b in zip(shard.views[held.buffer], before, strict=True))
    assert held.version == 1


class Watched(torch.optim.Adam):
    """Somebody else does something in the middle of each update."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["params"][0].data.fill_(99.0)
        self.meanwhile()
        return super().step(closure)

    def meanwhile(self) -> None:
        """Nothing yet."""


def test_whoever_pulls_in_the_middle_of_an_update_gets_the_version_before_it_at_once_and_keeps_it() -> None:
    pair = Pair(Watched(parameters(), lr=0.05), workers=2)
    (shard,), (other,) = pair.sides
    pair.apply(0, gradients(5))
    taken: list[tuple[int, int, list[Tensor]]] = []

    def pull() -> None:
        held = other.pin(1)  # with its deadline: the one who applies has the other lock
        taken.append((held.version, held.buffer, [view.clone() for view in other.views[held.buffer]]))

    assert isinstance(shard.optimizer, Watched)
    shard.optimizer.meanwhile = pull  # type: ignore[method-assign]
    for step in range(6, 12):
        with shard.applying:
            pair.apply(0, gradients(step))
        if taken:
            shard.optimizer.meanwhile = lambda: None  # type: ignore[method-assign]
    ((version, buffer, content),) = taken
    assert version == 1
    assert shard.version == 7
    assert not any(bool((tensor == 99.0).any()) for tensor in content)
    assert all(torch.equal(a, b) for a, b in zip(other.views[buffer], content, strict=True))


class Interrupted(torch.optim.Adam):
    """Stops in the middle of an update, after it has changed its first parameter and its state."""

    armed = False

    def step(self, closure: Any = None) -> Any:
        if not self.armed:
            return super().step(closure)
        for group in self.param_groups:
            group["params"][0].data.fill_(99.0)
        for state in self.state.values():
            state["exp_avg"].fill_(99.0)
        raise KeyboardInterrupt


@pytest.mark.parametrize("count", [1, 2])
def test_an_update_that_is_broken_off_leaves_parameters_and_state_as_they_were(count: int) -> None:
    pair = Pair(Interrupted(parameters(), lr=0.05), count)
    for step in range(4):
        pair.apply(0, gradients(step))
    for shard in pair.sides[0]:
        assert isinstance(shard.optimizer, Interrupted)
        shard.optimizer.armed = True
    with pytest.raises(KeyboardInterrupt):
        pair.apply(0, gradients(4))
    assert [shard.version for shard in pair.sides[1]] == [4] * count
    assert_same(pair, 1, *plain_run(OPTIMIZERS["Adam"], 4))
    pair.seq = 4
    pair.apply(1, gradients(4))
    assert_same(pair, 1, *plain_run(OPTIMIZERS["Adam"], 5))


def test_a_push_is_applied_once() -> None:
    pair = Pair(OPTIMIZERS["SGD"](parameters()))
    pair.apply(0, gradients(5))
    (shard,) = pair.sides[1]
    before = [view.clone() for view in pair.weights(1)]
    again = Origin(0, 1, 0, 0, 0.0)
    assert shard.apply([again], gradients(5), pair.given.param_groups) is False
    assert shard.version == 1
    assert all(torch.equal(a, b) for a, b in zip(pair.weights(1), before, strict=True))
    assert pair.control.partition_counters[0].shards[0].meters[0 * METER + DUPLICATES] == 1


def test_a_push_is_written_over_its_own_base_only_if_nobody_else_has_that() -> None:
    pair = Pair(OPTIMIZERS["Adam"](parameters()), workers=2)
    shard, held = pair.sides[0][0], pair.sides[0][0].counters.held
    assert len(shard.views) == 3  # workers + 1

    def push(worker: int, pusher: int | None) -> int:
        """Returns the buffer of the new version."""
        origin = Origin(worker, pair.seq + 1, shard.version, held[worker], 0.0)
        assert shard.apply([origin], gradients(pair.seq), pair.given.param_groups, pusher)
        pair.seq += 1
        return shard.newest().buffer

    first = shard.pin(0).buffer
    assert shard.pin(1).buffer == first  # both have version 0
    second = push(0, pusher=0)
    assert second != first
    assert shard.pin(0).buffer == second
    kept = [view.clone() for view in shard.views[second]]
    third = push(0, pusher=0)  # not over its base, which is the newest, nor over what worker 1 holds
    assert third not in (first, second)
    with pytest.raises(AssertionError, match="every buffer is held"):
        push(1, pusher=None)
    assert push(1, pusher=1) == first
    assert held.tolist() == [second, first]  # worker 1 holds what it has made
    assert all(torch.equal(a, b) for a, b in zip(shard.views[second], kept, strict=True))
    plain, state = plain_run(OPTIMIZERS["Adam"], 3)
    assert_same(pair, 0, plain, state)


def test_state_that_changes_its_type_during_the_run_is_named() -> None:
    class Turncoat(PythonNumbers):
        def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
            state["step"] = 0.5 if state.get("step") == 5 else state.get("step", 0) + 1

    pair = Pair(Turncoat(parameters()))
    for step in range(5):
        pair.apply(0, gradients(step))
    with pytest.raises(TypeError, match="optimizer: Turncoat changed the type or shape of its state 'step'"):
        pair.apply(0, gradients(5))


def test_state_that_begins_after_the_trial_steps_is_named() -> None:
    class Late(PythonNumbers):
        def update(self, group: dict[str, Any], parameter: Parameter, state: dict[str, Any]) -> None:
            super().update(group, parameter, state)
            if state["step"] == 5:
                state["late"] = torch.ones(1)

    pair = Pair(Late(parameters()))
    for step in range(4):
        pair.apply(0, gradients(step))
    with pytest.raises(TypeError, match="optimizer: Late added the state 'late' after its first steps"):
        pair.apply(0, gradients(4))


def test_plans_differ_when_models_or_settings_differ() -> None:
    def number(name: str, shards: int = 1) -> int:
        settings = Settings(shards=shards)
        plan: PartitionPlan = plan_partition(OPTIMIZERS[name](parameters()), settings, 2)
        return digest([plan], settings)

    assert number("SGD") == number("SGD")
    assert len({number("SGD"), number("momentum"), number("Adam"), number("SGD", 2)}) == 4


def test_mixed_types_lie_in_one_memory() -> None:
    pair = Pair(torch.optim.SGD([Parameter(torch.ones(3).bfloat16()), Parameter(torch.ones(2).double())], lr=1.0))
    pair.apply(0, [torch.ones(3).bfloat16(), torch.full((2,), 0.1, dtype=torch.float64)])
    assert [weight.tolist() for weight in pair.weights(1)] == [[0.0] * 3, [0.9] * 2]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_without_state_is_torchs_bit_for_bit(decay: float) -> None:
    def make(p: Any) -> Optimizer:
        return torch.optim.SGD(p, lr=0.3, weight_decay=decay)

    pair = Pair(make(parameters()), 2)
    for step in range(8):
        pair.apply(step % 2, gradients(step))
    assert_same(pair, 0, *plain_run(make, 8))
