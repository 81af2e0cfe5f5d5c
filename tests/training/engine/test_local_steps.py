"""Local steps against their closed forms, on quadratics: worker w has h (x - m_w)^2 / 2, whose steps with rate r lead
from x to m + (1 - r h)^H (x - m)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam

from scalebook.training.engine import Clip, HostName, Settings
from scalebook.training.engine.rules.codecs import Bf16, TopK
from scalebook.training.engine.rules.local_steps import DiLoCo, Elastic, Local, LocalSGD, Significance
from scalebook.training.engine.rules.settings import REAL_HOSTS
from scalebook.training.engine.rules.update_rules import Async, Rule, Softsync, Sync
from tests.training.engine.driven import DEADLINE_S, Driven, driven, random_tensors

SHAPES = ((3, 2), (4,))
RATE, CURVATURE = 0.125, 2.0
Q = 1 - RATE * CURVATURE
WORKERS = 3
START = random_tensors(SHAPES, 1, torch.float64)
MINIMA = [random_tensors(SHAPES, 10 + worker, torch.float64) for worker in range(WORKERS)]
BYTES = sum(tensor.nbytes for tensor in START)


def sgd(parameters: Sequence[torch.nn.Parameter]) -> SGD:
    return SGD(parameters, lr=RATE)


def step(run: Driven, worker: int, minima: Sequence[Sequence[Tensor]] = MINIMA) -> None:
    """One step of one worker, with the gradient of its own quadratic."""
    own = run.replicas[worker]
    run.push(worker, [CURVATURE * (p.detach() - m) for p, m in zip(own, minima[worker], strict=True)])


def together(run: Driven, steps: int) -> None:
    """So many steps of all workers, which wait for each other."""

    def all_of(worker: int) -> None:
        for _ in range(steps):
            step(run, worker)

    with ThreadPoolExecutor(WORKERS) as pool:
        for part in [pool.submit(all_of, worker) for worker in range(WORKERS)]:
            part.result(DEADLINE_S)


def centre(run: Driven) -> list[Tensor]:
    """What would be validated; worker 0 has its own again afterwards."""
    client = run.joined[0].clients[0]
    run.run.control.clock.play(client.host.flush())
    run.joined[0].snapshot()
    seen = [parameter.detach().clone() for parameter in run.replicas[0]]
    run.joined[0].pull()
    return seen


def after(x: Sequence[Tensor], worker: int, steps: int) -> list[Tensor]:
    return [m + Q**steps * (one - m) for one, m in zip(x, MINIMA[worker], strict=True)]


def assert_close(mine: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    torch.testing.assert_close(list(mine), list(expected), rtol=1e-12, atol=1e-13)


# --- local SGD -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", REAL_HOSTS)
def test_local_sgd_averages_parameters(host: HostName) -> None:
    expected = START
    with driven(WORKERS, Settings(Sync(), host=host, shards=2, local=LocalSGD(4)), START, sgd) as run:
        together(run, 12)
        for _ in range(3):
            ways = [after(expected, worker, 4) for worker in range(WORKERS)]
            expected = [torch.stack(parts).mean(0) for parts in zip(*ways, strict=True)]
        assert_close(centre(run), expected)
        assert run.joined[0].versions == [3]
        assert [client.steps for one in run.joined for client in one.clients] == [12] * WORKERS
        times = run.run.worker_times()
        assert [one.pushed_bytes for one in times] == [3 * BYTES] * WORKERS, "every fourth step alone"
        assert [one.updates for one in times] == [3] * WORKERS
        assert [one.gradients for one in times] == [12] * WORKERS


@pytest.mark.parametrize("host", REAL_HOSTS)
def test_who_comes_by_itself_moves_them_by_its_part(host: HostName) -> None:
    expected, own = START, [START] * WORKERS
    with driven(WORKERS, Settings(host=host, local=LocalSGD(2, outer_rate=0.5)), START, sgd) as run:
        for worker in (0, 1, 1, 2, 0, 2):
            for _ in range(2):
                step(run, worker)
            ways = zip(expected, own[worker], after(own[worker], worker, 2), strict=True)
            own[worker] = expected = [x - 0.5 / WORKERS * (base - y) for x, base, y in ways]
        assert_close(centre(run), expected)
        assert run.run.staleness().max() == 3


def test_softsync_moves_them_by_as_many_parts_as_it_averages() -> None:
    with driven(WORKERS, Settings(Softsync(2), local=LocalSGD(1)), START, sgd) as run:
        step(run, 0)
        assert_close(centre(run), START)
        step(run, 1)
        ways = [after(START, worker, 1) for worker in (0, 1)]
        expected = [x - 2 / 3 * (x - (a + b) / 2) for x, a, b in zip(START, *ways, strict=True)]
        assert_close(centre(run), expected)


@pytest.mark.parametrize("exact", [True, False])
def test_after_every_step_it_is_sync(exact: bool) -> None:
    """Of numbers with few bits to the last bit; else x - (x - y) is not y, by a rounding of each of the values."""
    start = [torch.round(8 * t) / 8 if exact else t for t in random_tensors(SHAPES, 3)]
    given = [[random_tensors(SHAPES, 100 * w + s) for s in range(6)] for w in range(2)]
    if exact:
        given = [[[torch.round(4 * t) / 4 for t in one] for one in of] for of in given]
    ends = []
    for settings in (Settings(Sync()), Settings(Sync(), local=LocalSGD(1))):
        with driven(2, settings, start, sgd) as run, ThreadPoolExecutor(2) as pool:

            def push_all(worker: int, run: Driven = run) -> None:
                for gradients in given[worker]:
                    run.push(worker, gradients)

            for part in [pool.submit(push_all, worker) for worker in range(2)]:
                part.result(DEADLINE_S)
            ends.append(centre(run))
    if exact:
        assert all(map(torch.equal, *ends))
    torch.testing.assert_close(*ends, rtol=0, atol=6 * 4 * torch.finfo(torch.float32).eps)


def test_post_local_switches_by_updates() -> None:
    local = LocalSGD(4, dense_updates=2, doubling_updates=1)
    with driven(1, Settings(local=local), START, sgd) as run:
        versions = []
        for _ in range(1 + 1 + 2 + 4 + 4):
            step(run, 0)
            versions.append(run.joined[0].versions[0])
        assert versions == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5]
        assert_close(centre(run), after(START, 0, 12))


def test_a_workers_own_optimizer_keeps_its_state() -> None:
    reference = [torch.nn.Parameter(t.clone()) for t in START]
    optimizer = Adam(reference, lr=0.05)
    with driven(1, Settings(local=LocalSGD(3)), START, lambda p: Adam(p, lr=0.05)) as run:
        for number in range(10):
            gradients = random_tensors(SHAPES, number, torch.float64)
            run.push(0, gradients, valid=number != 4)
            for parameter, gradient in zip(reference, gradients, strict=True):
                parameter.grad = gradient
            if number != 4:
                optimizer.step()
        assert_close([p.detach() for p in run.replicas[0]], [p.detach() for p in reference])
        snapshot = run.joined[0].snapshot()
        assert snapshot.versions == [3], "the tenth step is its own so far"
        torch.testing.assert_close(snapshot.optimizers[0]["state"], optimizer.state_dict()["state"])
        run.joined[0].push_rest()
        assert_close(centre(run), [p.detach() for p in reference])


def test_a_validation_in_between_changes_nothing() -> None:
    with driven(2, Settings(local=LocalSGD(3)), START, sgd) as run:
        step(run, 0)
        step(run, 0)
        for _ in range(3):
            step(run, 1)
        moved = [x - (x - y) / 2 for x, y in zip(START, after(START, 1, 3), strict=True)]
        assert_close(centre(run), moved)
        assert_close([p.detach() for p in run.replicas[0]], after(START, 0, 2))
        step(run, 0)
        ways = zip(moved, START, after(START, 0, 3), strict=True)
        assert_close(centre(run), [x - (base - y) / 2 for x, base, y in ways])


def test_a_worker_clips_its_own_gradients() -> None:
    settings = Settings(Sync(), clip=Clip("value", 1.0), local=LocalSGD(2))
    with driven(1, settings, [torch.zeros(3)], sgd) as run:
        for size in (8.0, 0.5):
            run.push(0, [torch.full((3,), size)])
        assert centre(run)[0].tolist() == [-RATE * 1.5] * 3


@pytest.mark.parametrize("rule", [Async(), Sync()], ids=repr)
def test_codecs_carry_what_the_steps_have_led_to(rule: Rule) -> None:
    """A lossy pull is where the steps begin: what it has lost is not pushed back."""
    start = [torch.ones(64) * 1.001]
    settings = Settings(rule, push_codec=TopK(0.5), pull_codec=Bf16(), local=LocalSGD(2))
    with driven(1, settings, start, sgd) as run:
        for _ in range(4):
            run.push(0, [torch.zeros(64)])
        assert torch.equal(centre(run)[0], start[0])
        assert run.replicas[0][0].detach().tolist() == [1.0] * 64


# --- DiLoCo ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", REAL_HOSTS)
def test_diloco_is_nesterov_on_the_way(host: HostName) -> None:
    local = DiLoCo(3, outer_rate=0.5, outer_momentum=0.75)
    expected, velocity = START, [torch.zeros_like(t) for t in START]
    with driven(WORKERS, Settings(Sync(), host=host, shards=2, local=local), START, sgd) as run:
        together(run, 12)
        for _ in range(4):
            ways = [after(expected, worker, 3) for worker in range(WORKERS)]
            means = [torch.stack(parts).mean(0) for parts in zip(*ways, strict=True)]
            gone = [x - mean for x, mean in zip(expected, means, strict=True)]
            velocity = [0.75 * v + g for v, g in zip(velocity, gone, strict=True)]
            expected = [x - 0.5 * (g + 0.75 * v) for x, g, v in zip(expected, gone, velocity, strict=True)]
        assert_close(centre(run), expected)
        momentum = run.joined[0].clients[0].state.now()
        assert_close([momentum[place]["momentum_buffer"] for place in range(len(SHAPES))], velocity)


# --- elastic averaging -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", REAL_HOSTS)
def test_elastic_averaging_of_all_at_once(host: HostName) -> None:
    local = Elastic(2, alpha=0.25)
    middle, own = START, [START] * WORKERS
    with driven(WORKERS, Settings(Sync(), host=host, shards=2, local=local), START, sgd) as run:
        together(run, 8)
        for _ in range(4):
            own = [after(x, worker, 2) for worker, x in enumerate(own)]
            forces = [[0.25 * (c - y) for c, y in zip(middle, x, strict=True)] for x in own]
            own = [[y + f for y, f in zip(x, of, strict=True)] for x, of in zip(own, forces, strict=True)]
            middle = [c - sum(parts) for c, *parts in zip(middle, *forces, strict=True)]
        assert_close(centre(run), middle)
        for worker in range(WORKERS):
            assert_close([p.detach() for p in run.replicas[worker]], own[worker])


@pytest.mark.parametrize("host", REAL_HOSTS)
def test_elastic_averaging_of_one_after_the_other(host: HostName) -> None:
    middle, own = START, [START] * WORKERS
    with driven(WORKERS, Settings(host=host, local=Elastic(2)), START, sgd) as run:
        for worker in (0, 1, 1, 2, 0, 2, 1):
            for _ in range(2):
                step(run, worker)
            x = after(own[worker], worker, 2)
            forces = [0.3 * (c - y) for c, y in zip(middle, x, strict=True)]
            own[worker] = [y + f for y, f in zip(x, forces, strict=True)]
            middle = [c - f for c, f in zip(middle, forces, strict=True)]
        assert_close(centre(run), middle)
        assert run.run.staleness().max() == 0, "the force is from the newest"
        for worker in range(WORKERS):
            assert_close([p.detach() for p in run.replicas[worker]], own[worker])


def test_without_gradients_elastic_workers_contract_to_the_centre() -> None:
    """By 1 - alpha each time, and what all together have is kept."""
    alpha = 0.25
    with driven(1, Settings(local=Elastic(1, alpha=alpha)), [torch.zeros(2, dtype=torch.float64)], sgd) as run:
        run.push(0, [torch.full((2,), -1 / RATE, dtype=torch.float64)])
        apart = []
        for _ in range(5):
            apart.append(float((run.replicas[0][0].detach() - centre(run)[0])[0]))
            run.push(0, [torch.zeros(2, dtype=torch.float64)])
        assert apart == pytest.approx([(1 - 2 * alpha) ** (n + 1) for n in range(5)], rel=1e-12)
        assert float((run.replicas[0][0].detach() + centre(run)[0])[0]) == pytest.approx(1.0, rel=1e-12)


# --- significance ----------------------------------------------------------------------------------------------------


def test_a_push_waits_until_it_has_moved_enough() -> None:
    start = [torch.tensor([3.0, 4.0], dtype=torch.float64)]  # of norm 5: 0.1 of it is 0.5
    with driven(1, Settings(local=Significance(0.1, most=100)), start, lambda p: SGD(p, lr=1.0)) as run:
        sent = []
        for _ in range(8):
            run.push(0, [torch.tensor([0.0, -0.2], dtype=torch.float64)])
            sent.append(run.joined[0].versions[0])
        assert sent == [0, 0, 1, 1, 1, 2, 2, 2], "0.6 > 0.5; then 0.6 > 0.1 x norm(3, 4.6) = 0.549"
        assert_close(centre(run), [torch.tensor([3.0, 5.2], dtype=torch.float64)])


@pytest.mark.parametrize("local", [Significance(1e-9), Significance(1e9, most=1)], ids=repr)
def test_a_share_of_next_to_nothing_is_the_rule_itself(local: Local) -> None:
    ends = []
    for settings in (Settings(), Settings(local=local)):
        with driven(2, settings, START, sgd) as run:
            for worker in (0, 1, 1, 0, 1):
                step(run, worker)
            ends.append(centre(run))
    assert_close(*ends)


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [LocalSGD(5), DiLoCo(5, 1.0, 0.0), Significance(1e9), Elastic(5)], ids=repr)
def test_what_is_left_is_pushed_at_the_end(local: Local) -> None:
    with driven(1, Settings(local=local), START, sgd) as run:
        for _ in range(7):
            step(run, 0)
        run.joined[0].finish()
        updates = 1 if isinstance(local, Significance) else 2
        assert run.run.counts().updates == updates
        if not isinstance(local, Elastic):
            assert_close(centre(run), after(START, 0, 7))
