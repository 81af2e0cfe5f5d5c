"""Steps made block by block are those of torch's optimizer, to the last bit."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer

from scalebook.training.engine import Settings
from scalebook.training.engine.memory.region import Control
from scalebook.training.engine.store import block_steps
from scalebook.training.engine.store.block_steps import BlockSteps, is_torchs_adam
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.store_layout import plan_partition
from scalebook.training.engine.trace import Origin

STEPS = 6


def groups(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    return [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:], "betas": (0.8, 0.9)}]


OPTIMIZERS: dict[str, Callable[[Sequence[Parameter]], Optimizer]] = {
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "Nesterov, decay, maximize": lambda p: SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, maximize=True
    ),
    "Nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "dampening": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "decay, maximize": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, maximize=True),
    "Adam": lambda p: Adam(p, lr=0.05, weight_decay=0.01),
    "AdamW": lambda p: AdamW(p, lr=0.05),
    "AdamW, amsgrad": lambda p: AdamW(p, lr=0.05, amsgrad=True),
    "AdamW, fused": lambda p: AdamW(p, lr=0.05, fused=True),
    "two groups": lambda p: Adam(groups(p)),
}
BLOCKWISE = 256  # numbers of a parameter, at most, in these tests


def parameters() -> list[Parameter]:
    """Several blocks and a rest, one block exactly, small ones, an empty one, another order, another type."""
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(shape, generator=generator) for shape in [(3 * BLOCKWISE + 13,), (16, 16), (5,), (2, 3)]]
    pictures = torch.randn(8, 4, 5, 5, generator=generator).to(memory_format=torch.channels_last)
    numbers = torch.randn(9, generator=generator, dtype=torch.float64)
    return [Parameter(one) for one in [*made, pictures, torch.empty(0), numbers]]


def gradients(step: int) -> list[Tensor | None]:
    """The fourth parameter has none at first, the third none now and then."""
    generator = torch.Generator().manual_seed(100 + step)
    made: list[Tensor | None] = [
        torch.empty_like(p).copy_(torch.randn(p.shape, generator=generator)) for p in map(torch.detach, parameters())
    ]
    if step < 3:
        made[3] = None
    if step == 4:
        made[2] = None
    return made


def shard_of(optimizer: Optimizer, settings: Settings = Settings()) -> Shard:  # noqa: B008  # it is frozen
    plan, control = plan_partition(optimizer, settings, 1), Control(1, settings)
    memory = torch.zeros(plan.end, dtype=torch.uint8)
    shard = Shard(plan.shards[0], memory, control.partition_counters[0].shards[0], optimizer, settings, 5.0)
    shard.initialise([p.detach() for group in optimizer.param_groups for p in group["params"]])
    return shard


def apply(shard: Shard, step: int, given: Sequence[Tensor | None], groups: list[dict[str, object]]) -> None:
    with shard.applying:
        shard.apply([Origin(0, step + 1, shard.version, shard.newest().buffer, 0.0)], given, groups)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Of each step made in blocks, how many there were."""
    counts, plain = list[int](), BlockSteps._blocks

    def counted(self: BlockSteps, *args: object) -> list[object]:
        found = list(plain(self, *args))  # type: ignore[arg-type]
        counts.append(len(found))
        return list(found)

    monkeypatch.setattr(block_steps, "BLOCK", 4 * BLOCKWISE)
    monkeypatch.setattr(BlockSteps, "_blocks", counted)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield counts
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_bit_is_that_of_torchs_optimizer(name: str, made: list[int]) -> None:
    mine = parameters()
    optimizer, shard = OPTIMIZERS[name](mine), shard_of(OPTIMIZERS[name](parameters()))
    for step in range(STEPS):
        for parameter, gradient in zip(mine, gradients(step), strict=True):
            parameter.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        given = gradients(step)
        apply(shard, step, given, optimizer.param_groups)
        for gradient, before in zip(given, gradients(step), strict=True):
            assert gradient is before if gradient is None or before is None else torch.equal(gradient, before)
        optimizer.step()
        for view, parameter in zip(shard.views[shard.newest().buffer], mine, strict=True):
            assert torch.equal(view, parameter)
    with shard.applying:
        state = shard.optimizer_state()
    for place, parameter in enumerate(mine):
        assert state[place].keys() == optimizer.state[parameter].keys()
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(state[place][key], value), (place, key)
    assert sum(made) >= 6 * 3, "no step was made in blocks"


def test_a_setting_may_change_during_the_run(made: list[int]) -> None:
    """Without amsgrad, its state stays where it is."""
    mine = parameters()
    optimizer, shard = Adam(mine, lr=0.05, amsgrad=True), shard_of(Adam(parameters(), lr=0.05, amsgrad=True))
    for step in range(STEPS):
        optimizer.param_groups[0]["amsgrad"] = step < 3
        for parameter, gradient in zip(mine, gradients(step), strict=True):
            parameter.grad = gradient
        apply(shard, step, gradients(step), optimizer.param_groups)
        optimizer.step()
        newest = shard.views[shard.newest().buffer]
        assert all(torch.equal(a, b) for a, b in zip(newest, mine, strict=True)), step
    assert made


def neighbours() -> list[Parameter]:
    """Of 64 numbers or a multiple: three rows of them, the second begun by one with other numbers of steps."""
    generator = torch.Generator().manual_seed(2)
    shapes = [(64,), (128, 3), (7, 64), (5,), (64,), (640,)]
    return [Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_neighbours_are_stepped_on_as_one(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same bits, whether torch's operations are written out or its function is called."""
    rows: list[list[tuple[int, int]]] = []
    plain = BlockSteps._rows

    def noted(self: BlockSteps, *args: Any) -> Iterator[tuple[int, int]]:
        rows.append(list(plain(self, *args)))
        return iter(rows[-1])

    monkeypatch.setattr(BlockSteps, "_rows", noted)
    for written_out in (True, False):
        monkeypatch.setattr(block_steps, "is_torchs_adam", lambda dtype: written_out)  # noqa: B023
        mine = neighbours()
        optimizer, shard = AdamW(mine, lr=0.05), shard_of(AdamW(neighbours(), lr=0.05))
        slot = torch.zeros(shard.plan.version.nbytes, dtype=torch.uint8)
        views = shard.plan.version.views(slot)
        for step in range(5):
            generator = torch.Generator().manual_seed(step)
            given: list[Tensor | None] = [view.copy_(torch.randn(view.shape, generator=generator)) for view in views]
            if step == 2:
                given[4] = None
            for parameter, gradient in zip(mine, given, strict=True):
                parameter.grad = gradient
            apply(shard, step, given, optimizer.param_groups)
            optimizer.step()
            newest = shard.views[shard.newest().buffer]
            assert all(torch.equal(a, b) for a, b in zip(newest, mine, strict=True)), (written_out, step)
        with shard.applying:
            state = shard.optimizer_state()
        for place, parameter in enumerate(mine):
            assert all(torch.equal(state[place][key], value) for key, value in optimizer.state[parameter].items())
    together, apart = [(0, 896), (3, 5), (4, 704)], [(0, 896), (3, 5), (4, 64), (5, 640)]
    assert rows == 2 * [together, [(0, 896), (3, 5), (5, 640)], apart, apart]


def test_what_is_written_out_gives_torchs_bits_or_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_torchs_adam(torch.float32)
    assert is_torchs_adam(torch.float64)
    monkeypatch.setattr(block_steps, "adam", lambda params, *args, **kwargs: params[0].mul_(1 + 2**-20))
    is_torchs_adam.cache_clear()
    assert not is_torchs_adam(torch.float32)  # as if torch computed otherwise
    is_torchs_adam.cache_clear()


def test_the_newest_version_and_state_stay_as_they_are_meanwhile(
    monkeypatch: pytest.MonkeyPatch, made: list[int]
) -> None:
    """As whoever dies in the middle leaves them."""
    shard = shard_of(AdamW(parameters(), lr=0.05))
    groups = shard.optimizer.param_groups
    for step in range(4):
        apply(shard, step, gradients(step), groups)
    before = [part.clone() for part in shard.content(shard.newest())]

    def dies(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(BlockSteps, "_finish", dies)
        with pytest.raises(KeyboardInterrupt):
            apply(shard, 4, gradients(4), groups)
    assert shard.version == 4
    assert all(torch.equal(a, b) for a, b in zip(before, shard.content(shard.newest()), strict=True))
    apply(shard, 4, gradients(4), groups)
    assert shard.version == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Adam(p, lr=torch.tensor(0.1)), lambda p: Adam(p, foreach=True),
        torch.optim.RMSprop, lambda p: SGD(p, lr=0.1),
    ],
    ids=["a rate in a tensor", "foreach", "RMSprop", "nothing is kept"],
)  # fmt: skip
def test_others_step_as_they_do(make: Callable[[Sequence[Parameter]], Optimizer], made: list[int]) -> None:
    shard = shard_of(make(parameters()))
    for step in range(2):
        apply(shard, step, gradients(5), shard.optimizer.param_groups)
    assert (made, shard.version) == ([], 2)
