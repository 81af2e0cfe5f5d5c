"""What comes out over the channel, to the last bit."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.handshake import serving
from scalebook.training.engine.rules.codecs import Bf16, Int8, PowerSgd, Qsgd, Sign, TopK
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.engine.worker.worker_end import JoinedEnd
from tests.training.engine.driven import random_tensors
from tests.training.engine.net.far import DEADLINE_S, Far
from tests.training.engine.worker.peers import together

pytestmark = pytest.mark.long

SHAPES = [(300, 40), (40,), (1,), (7, 3, 2)]
STEPS = 12
Make = Callable[[Sequence[Parameter]], Optimizer]


def momentum(parameters: Sequence[Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(parameters: Sequence[Parameter]) -> Optimizer:
    return Adam(parameters, lr=0.01)


def plain(parameters: Sequence[Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1)


def gradients(step: int) -> list[Tensor | None]:
    """Of a worker's step; now and then one of them is missing."""
    drawn: list[Tensor | None] = [*random_tensors(SHAPES, seed=100 + step)]
    if step % 5 == 3:
        drawn[1] = None
    return drawn


def give(parameters: Sequence[Parameter], optimizer: Optimizer, step: int) -> None:
    for parameter, gradient in zip(parameters, gradients(step), strict=True):
        parameter.grad = gradient
    optimizer.param_groups[0]["lr"] = 0.1 / (step + 3)


def fresh() -> list[Parameter]:
    return [Parameter(one) for one in random_tensors(SHAPES, seed=1)]


def in_one_process(make: Make) -> list[Tensor]:
    parameters = fresh()
    optimizer = make(parameters)
    for step in range(STEPS):
        give(parameters, optimizer, step)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def train(joined: JoinedEnd, parameters: Sequence[Parameter]) -> None:
    joined.start()
    joined.begin()
    for step in range(STEPS):
        give(parameters, joined.clients[0].optimizer, step)
        joined.clients[0].push()
    joined.finish()
    joined.wait_for_others()
    joined.pull()


def far_away(make: Make, workers: int = 1, tls: bool = False, **settings: Any) -> list[list[Tensor]]:
    """Each worker's parameters at the end, with the same gradients in each."""
    launch = Launch(workers, Settings(**settings))
    far, every = Far(launch, make, serving() if tls else None, SHAPES), [fresh() for _ in range(workers)]
    try:
        ends = [far.worker(worker, DEADLINE_S) for worker in range(workers)]
        joins = [lambda e=e, p=p: e.join([make(p)]) for e, p in zip(ends, every, strict=True)]
        joined: list[JoinedEnd] = together(*joins)
        together(*[lambda j=j, p=p: train(j, p) for j, p in zip(joined, every, strict=True)])
        for one in joined:
            one.detach()
    finally:
        far.close()
        launch.close()
    assert far.endings == []
    return [[parameter.detach() for parameter in parameters] for parameters in every]


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("make", "shards"), [(plain, 1), (momentum, 3), (adam, 2)])
def test_one_worker_far_away_is_one_process(make: Make, shards: int) -> None:
    assert_same(far_away(make, shards=shards)[0], in_one_process(make))


def test_so_it_is_under_tls() -> None:
    assert_same(far_away(adam, tls=True)[0], in_one_process(adam))


def test_averages_of_equal_gradients_are_one_process() -> None:
    """Two workers under `sync`: halves of two equal numbers are exact."""
    first, second = far_away(momentum, workers=2, rule=Sync())
    assert_same(first, in_one_process(momentum))
    assert_same(second, first)


@pytest.mark.parametrize(
    "settings",
    [
        {"local": Downpour(3, 1)},
        {"local": Downpour(1, 4)},
        {"local": LocalSGD(every=4), "rule": Sync()},
        {"push_codec": TopK(share=0.05), "shards": 2},
        {"push_codec": PowerSgd()},
        {"push_codec": Qsgd(), "local": Downpour(3, 1)},
        {"pull_codec": Int8(), "shards": 2},
        {"pull_codec": Bf16(), "push_codec": Sign()},
        {
            "push_codec": TopK(share=0.05),
            "pull_codec": Int8(),
            "local": LocalSGD(every=4),
            "rule": Sync(),
        },
    ],
)
def test_a_worker_s_own_steps_and_frames_are_those_that_it_makes_beside_the_shards(settings: dict[str, Any]) -> None:
    make = adam if "local" in settings else plain
    launch, parameters = Launch(1, Settings(**settings)), fresh()
    joined = launch.worker(0, DEADLINE_S).join([make(parameters)])
    train(joined, parameters)
    joined.detach()
    launch.close()
    assert_same(far_away(make, **settings)[0], [parameter.detach() for parameter in parameters])
