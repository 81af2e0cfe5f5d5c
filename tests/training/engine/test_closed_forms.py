"""What the engine must give to the last bit, or by a formula: the real engine, driven push by push in one process."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.engine import HostName, Settings
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove, Inverse
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.update_rules import Bounded, Rule, Softsync, Sync
from tests.training.engine.custom_optimizers import LayerWise, PythonNumbers
from tests.training.engine.driven import Driven, Make, driven, random_tensors

SHAPES = [(3, 4), (7,), (2, 2, 2), (5, 1), (1,), (6, 3)]
HOSTS: list[HostName] = ["inline", "process"]


def groups(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    return [{"params": parameters[:2], "lr": 0.2}, {"params": parameters[2:]}]


OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "layer-wise": LayerWise,
    "Python numbers": PythonNumbers,
    "two groups": lambda p: torch.optim.Adam(groups(p), lr=0.01),
}


def gradients(step: int, dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    """Random ones; the third parameter has none in every fourth step."""
    made: list[Tensor | None] = [*random_tensors(SHAPES, 1000 + step, dtype)]
    made[2] = None if step % 4 == 3 else made[2]
    return made


def assert_equal(mine: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for one, other in zip(mine, expected, strict=True):
        assert torch.equal(one, other)


# --- one worker is plain training ----------------------------------------------------------------------------------


def plain(make: Make, steps: int) -> tuple[list[Parameter], dict[str, Any]]:
    """`steps` steps of the optimizer itself, the learning rate falling as a scheduler would let it."""
    mine = [Parameter(t) for t in random_tensors(SHAPES, 5)]
    optimizer = make(mine)
    for step in range(steps):
        for parameter, gradient in zip(mine, gradients(step), strict=True):
            parameter.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] *= 0.99
        optimizer.step()
    return mine, optimizer.state_dict()


def push_with_schedule(one: Driven, worker: int, step: int) -> None:
    for group in one.joined[worker].clients[0].optimizer.param_groups:
        group["lr"] *= 0.99
    one.push(worker, gradients(step))


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_worker_is_plain_training_bit_for_bit(host: HostName, optimizer: str) -> None:
    make = OPTIMIZERS[optimizer]
    expected, state = plain(make, steps=60)
    with driven(1, Settings(host=host, shards=2), random_tensors(SHAPES, 5), make) as one:
        for step in range(60):
            push_with_schedule(one, 0, step)
        snapshot = one.joined[0].snapshot()
        assert_equal(one.replicas[0], expected)
        assert snapshot.versions == [60]
        torch.testing.assert_close(snapshot.optimizers[0], state, rtol=0, atol=0)
        assert one.run.staleness().max() == 0


@pytest.mark.each_value
@pytest.mark.parametrize("rule", [Bounded(1), Sync(), Softsync(1)])
@pytest.mark.parametrize("host", HOSTS)
def test_so_it_is_by_every_rule(host: HostName, rule: Rule) -> None:
    make = OPTIMIZERS["Adam"]
    expected, _ = plain(make, steps=20)
    settings = Settings(rule, Inverse(), warmup_updates=3, shards=3, host=host)
    with driven(1, settings, random_tensors(SHAPES, 5), make) as one:
        for step in range(20):
            push_with_schedule(one, 0, step)
        assert_equal(one.newest(), expected)


# --- shards ----------------------------------------------------------------------------------------------------------


def in_turn(settings: Settings, make: Make, workers: int = 2, pushes: int = 30) -> list[Tensor]:
    """Workers push one after the other: constant staleness `workers` - 1 after the first round."""
    with driven(workers, settings, random_tensors(SHAPES, 5), make) as run:
        for step in range(pushes):
            push_with_schedule(run, step % workers, step)
        return run.newest()


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_sharded_is_unsharded_bit_for_bit(host: HostName, optimizer: str) -> None:
    make = OPTIMIZERS[optimizer]
    whole = in_turn(Settings(damping=Inverse()), make, workers=3)
    for shards in (1, 2, 3, 5):
        assert_equal(in_turn(Settings(damping=Inverse(), shards=shards, host=host), make, workers=3), whole)


@pytest.mark.parametrize("host", HOSTS)
def test_sharded_softsync_is_unsharded_bit_for_bit(host: HostName) -> None:
    make = OPTIMIZERS["momentum"]
    whole = in_turn(Settings(Softsync(3)), make)
    for shards in (2, 5):
        assert_equal(in_turn(Settings(Softsync(3), shards=shards, host=host), make), whole)


BETWEEN = sorted({*range(16)} - {0, 1, 3, 7, 15})


# --- staleness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0, 1, 3, 7, 15, *(pytest.param(tau, marks=pytest.mark.thorough) for tau in BETWEEN)])
def test_with_constant_staleness_sgd_is_stable_up_to_the_formula(tau: int) -> None:
    # Quadratics of 1600 curvatures at once, lr 1, an own experiment each: geometric from 0.05 to 2.7, 0.25 % apart
    curvatures = torch.logspace(math.log10(0.05), math.log10(2.7), 1600, dtype=torch.float64)
    period = 4 * tau + 2  # of the oscillation at the threshold, in pushes
    pushes = 60 * period
    start = [torch.ones_like(curvatures)]
    early, late = torch.zeros_like(curvatures), torch.zeros_like(curvatures)
    with driven(tau + 1, Settings(), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
        for push in range(pushes):
            (weights,) = run.replicas[push % (tau + 1)]
            run.push(push % (tau + 1), [curvatures * weights.detach()])
            size = weights.detach().abs()
            if pushes - 40 * period <= push < pushes - 38 * period:
                early = torch.maximum(early, size)
            elif push >= pushes - 2 * period:
                late = torch.maximum(late, size)
        bins = run.run.staleness().counts.sum(0)
    assert bins[tau] == pushes - tau  # but for the first ones of each worker
    stable = torch.isfinite(late) & (late < early)
    threshold = float(curvatures[~stable].min())
    assert stable[curvatures < threshold].all()
    assert threshold == pytest.approx(2 * math.sin(math.pi / period), rel=0.02)


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("workers", [2, 5])
def test_workers_in_turn_have_a_staleness_of_all_others(host: HostName, workers: int) -> None:
    with driven(workers, Settings(host=host, shards=2), random_tensors(SHAPES, 5), OPTIMIZERS["SGD"]) as run:
        for push in range(40):
            run.push(push % workers, gradients(push))
        bins = run.run.staleness().counts.sum(0)[:workers].tolist()
    assert bins == [1] * (workers - 1) + [40 - workers + 1]


def test_inverse_damping_divides_the_learning_rate() -> None:
    weights = random_tensors([(4,)], 0, torch.float64)
    with driven(3, Settings(damping=Inverse()), weights, lambda p: torch.optim.SGD(p, lr=0.5)) as run:
        for push, expected in enumerate([1.0, 1.0, 0.5, 0.5, 0.5]):
            gradient = random_tensors([(4,)], 10 + push, torch.float64)
            weights = [weights[0].add(gradient[0], alpha=-0.5 * expected)]
            run.push(push % 3, gradient)
            assert_equal(run.replicas[push % 3], weights)


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_staler_than_the_limit_is_dropped_counted_and_not_applied(host: HostName) -> None:
    settings = Settings(damping=DropAbove(1), host=host, shards=2)
    with driven(3, settings, random_tensors(SHAPES, 5), lambda p: torch.optim.SGD(p, lr=1.0)) as run:
        expected, taken = random_tensors(SHAPES, 5), []
        for push in range(9):
            own = random_tensors(SHAPES, push)
            taken.append(run.push(push % 3, own))
            if taken[-1]:
                expected = [w.add(g, alpha=-1.0) for w, g in zip(expected, own, strict=True)]
        # worker 2 meets staleness 2, is dropped and pulls; whoever pushes next is then no staler than the limit
        assert taken == [True, True, False, True, True, False, True, True, False]
        assert_equal(run.newest(), expected)
        dropped = {m.worker: m.dropped for m in run.run.pushes() if m.shard == 0}
        assert dropped == {0: 0, 1: 0, 2: 3}


@pytest.mark.parametrize("host", HOSTS)
def test_sync_drops_a_gradient_of_which_only_a_part_is_new(host: HostName) -> None:
    start = random_tensors(SHAPES, 5)
    settings = Settings(Sync(backup_workers=1), host=host, shards=3)
    with driven(2, settings, start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
        own = random_tensors(SHAPES, 1)
        assert run.push(0, own)
        expected = run.newest()
        late = run.joined[1].clients[0]  # as if it had pulled while the first shard alone had the update
        late.bases[0] = late.host.partition.shards[0].pin(1)
        assert [base.version for base in late.bases] == [1, 0, 0]
        assert not run.push(1, own)
        assert_equal(run.newest(), expected)
        assert [m.dropped for m in run.run.pushes() if m.worker == 1 and m.shard == 0] == [1]


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("host", HOSTS)
def test_delay_compensation_against_a_reference(host: HostName, adaptive: bool) -> None:
    law = DelayCompensation(strength=0.3, adaptive=adaptive, decay=0.9)
    start = random_tensors(SHAPES, 5, torch.float64)
    newest = [t.clone() for t in start]
    backups, squares = [[t.clone() for t in start] for _ in range(3)], [torch.zeros_like(t) for t in start]
    with driven(3, Settings(damping=law, host=host, shards=2), start, lambda p: torch.optim.SGD(p, lr=0.05)) as run:
        for push in range(20):
            worker, own = push % 3, random_tensors(SHAPES, 50 + push, torch.float64)
            for weight, backup, square, gradient in zip(newest, backups[worker], squares, own, strict=True):
                strength = 0.3 / torch.ones_like(square)
                if adaptive:
                    square.copy_(0.9 * square + (1 - 0.9) * gradient**2)
                    strength = 0.3 / (square + 1e-7).sqrt()
                weight -= 0.05 * (gradient + strength * gradient**2 * (weight - backup))
                backup.copy_(weight)
            run.push(worker, own)
        torch.testing.assert_close(run.newest(), newest, rtol=1e-12, atol=1e-13)


# --- Downpour --------------------------------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (1, 3), (3, 1), (2, 3), (4, 2), (3, 3)])
def test_downpour_against_a_reference(host: HostName, n_push: int, n_fetch: int) -> None:
    lr, target = 0.1, random_tensors(SHAPES, 6, torch.float64)
    start = random_tensors(SHAPES, 5, torch.float64)
    server = [t.clone() for t in start]
    own = [[t.clone() for t in start] for _ in range(2)]
    summed: list[list[Tensor] | None] = [None, None]
    settings = Settings(local=Downpour(n_push, n_fetch), host=host, shards=2)
    with driven(2, settings, start, lambda p: torch.optim.SGD(p, lr=lr)) as run:
        for step in range(1, 26):
            for worker in (0, 1):
                assert_equal([p.detach() for p in run.replicas[worker]], own[worker])
                new = [2.0 * (w - t) for w, t in zip(own[worker], target, strict=True)]
                before = summed[worker]
                total = new if before is None else [a + b for a, b in zip(before, new, strict=True)]
                summed[worker] = total
                if step % n_push == 0:
                    server = [w.add(g, alpha=-lr) for w, g in zip(server, total, strict=True)]
                    summed[worker] = None
                own[worker] = [w.add(g, alpha=-lr) for w, g in zip(own[worker], new, strict=True)]
                if step % n_fetch == 0:
                    own[worker] = [t.clone() for t in server]
                run.push(worker, new)
        assert_equal(run.newest(), server)


@pytest.mark.parametrize("n_push", [1, 3])
def test_an_unusable_gradient_spoils_nothing(n_push: int) -> None:
    start = [torch.zeros(3, dtype=torch.float64)]
    with driven(1, Settings(local=Downpour(n_push, 1)), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
        for step in range(6):
            bad = step == 1
            run.push(0, [torch.full((3,), math.inf if bad else 1.0, dtype=torch.float64)], valid=not bad)
        assert run.newest()[0].tolist() == [-5.0] * 3
