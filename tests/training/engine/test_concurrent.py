"""The real engine with processes of its own, all at once: sums, averages and stalenesses that are known beforehand."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from allpairspy import AllPairs
from torch import Tensor
from torch.nn import Linear, Module, Parameter, Sequential, Tanh
from torch.nn.functional import mse_loss
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine import HostName, Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.memory.region import FIRST_BIN, METER
from scalebook.training.engine.rules.damping import Inverse
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from tests.training.engine.forking import run_workers

pytestmark = [pytest.mark.long, pytest.mark.sampled]

DEADLINE_S = 30.0
HOSTS: list[HostName] = ["inline", "process"]
SHAPES = [(20, 3), (7,), (4, 4), (1,)]
FREE = [Settings(), Settings(shards=3), Settings(damping=Inverse())]
Train = Callable[[int, Joined], None]


def run_to_end(run: SharedRun, make: Callable[[], tuple[Module, Optimizer]], train: Train) -> list[list[Tensor]]:
    """`train(worker, joined)` in every worker; the final parameters as each worker sees them."""

    def body(worker: int) -> list[Tensor]:
        model, optimizer = make()
        joined = join(run, run.member(worker, DEADLINE_S), [optimizer])
        joined.begin()
        train(worker, joined)
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        return [parameter.detach().clone() for parameter in model.parameters()]

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [make()[1]])

    return run_workers(run.control.workers, body, servers=run.servers, serve=server if run.servers else None)


# --- sums ------------------------------------------------------------------------------------------------------------


class Zeros(Module):
    """Parameters that count: with SGD and learning rate 1 they are minus the sum of what was applied."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([Parameter(torch.zeros(*shape)) for shape in SHAPES])


def zeros() -> tuple[Module, Optimizer]:
    model = Zeros()
    return model, SGD(model.parameters(), lr=1.0)


def push_constants(pushes: int, value: Callable[[int], float] = lambda worker: 1.0, pause_s: float = 0.0) -> Train:
    """`pushes` gradients that are `value(worker)` everywhere; ends early at the last update of a budget."""

    def train(worker: int, joined: Joined) -> None:
        (client,) = joined.clients
        for _ in range(pushes):
            time.sleep(pause_s)
            for parameter in client.replica.parameters:
                parameter.grad = torch.full_like(parameter, value(worker))
            if client.push().is_last:
                return

    return train


def fresh_at(run: SharedRun, shard: int) -> list[int]:
    """Gradients of staleness 0 that a shard has applied, by worker; `run.staleness()` knows the first shard only."""
    meters = run.control.partition_counters[0].shards[shard].meters
    return [meters[worker * METER + FIRST_BIN] for worker in range(run.control.workers)]


def assert_all_are(finals: list[list[Tensor]], value: float) -> None:
    for final in finals:
        for parameter, shape in zip(final, SHAPES, strict=True):
            assert torch.equal(parameter, torch.full(shape, value))


@pytest.mark.parametrize(("rule", "host", "shards"), list(AllPairs([[Async(), Bounded(2)], HOSTS, [1, 3]])), ids=str)
def test_concurrent_pushes_sum_exactly(host: HostName, shards: int, rule: Rule) -> None:
    run = SharedRun(4, Settings(rule, host=host, shards=shards))
    finals = run_to_end(run, zeros, push_constants(100, lambda worker: worker + 1.0))
    assert_all_are(finals, -100.0 * (1 + 2 + 3 + 4))
    assert run.counts().updates == 400
    assert [(m.applied, m.dropped, m.duplicates) for m in run.pushes()] == [(100, 0, 0)] * 4 * shards


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("shards", [1, 3])
def test_sync_applies_the_mean_of_all_workers(host: HostName, shards: int) -> None:
    run = SharedRun(4, Settings(Sync(), host=host, shards=shards))
    finals = run_to_end(run, zeros, push_constants(60, lambda worker: worker + 1.0))
    assert_all_are(finals, -60 * 2.5)
    assert [fresh_at(run, shard) for shard in range(shards)] == [[60] * 4] * shards
    assert sum(m.dropped for m in run.pushes()) == 0


@pytest.mark.parametrize("host", HOSTS)
def test_softsync_averages_all_and_the_rest_at_the_end(host: HostName) -> None:
    run = SharedRun(4, Settings(Softsync(3), host=host, shards=2))
    assert_all_are(run_to_end(run, zeros, push_constants(50)), -67.0)  # 200 = 66 * 3 + 2
    assert [m.applied for m in run.pushes()] == [50] * 8
    assert all(m.dropped == 0 for m in run.pushes())


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("shards", [1, 3])
def test_backup_workers_cost_drops_but_no_staleness(host: HostName, shards: int) -> None:
    # Nobody finishes before the budget is used up, so each update has exactly three gradients of its own version
    run = SharedRun(4, Settings(Sync(backup_workers=1), max_updates=150, host=host, shards=shards))
    assert_all_are(run_to_end(run, zeros, push_constants(100_000)), -150.0)
    for shard in range(shards):
        assert sum(m.applied for m in run.pushes() if m.shard == shard) == 3 * 150
        assert sum(fresh_at(run, shard)) == 3 * 150


@pytest.mark.each_value
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("rule", [Async(), Bounded(3), Sync(), Sync(1), Softsync(2)])
def test_a_budget_of_updates_is_met_exactly(host: HostName, rule: Rule) -> None:
    run = SharedRun(3, Settings(rule, max_updates=40, host=host, shards=2))
    assert_all_are(run_to_end(run, zeros, push_constants(1000)), -40.0)


# --- sync is large-batch training ----------------------------------------------------------------------------------


def network() -> Module:
    torch.manual_seed(3)
    return Sequential(Linear(6, 8), Tanh(), Linear(8, 5), Tanh(), Linear(5, 2)).double()


def with_momentum() -> tuple[Module, Optimizer]:
    model = network()
    return model, SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def with_adam() -> tuple[Module, Optimizer]:
    model = network()
    return model, Adam(model.parameters(), lr=0.01)


def batch(worker: int, step: int) -> tuple[Tensor, Tensor]:
    """Inputs [4, 6] and targets [4, 2]."""
    generator = torch.Generator().manual_seed(1000 * worker + step)
    made = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    return made[:, :6], made[:, 6:]


@pytest.mark.parametrize(("make", "host", "shards"), list(AllPairs([[with_momentum, with_adam], HOSTS, [1, 3]])))
def test_sync_is_one_process_with_the_n_fold_batch(
    host: HostName, shards: int, make: Callable[[], tuple[Module, Optimizer]]
) -> None:
    models: dict[int, Module] = {}

    def make_mine() -> tuple[Module, Optimizer]:
        model, optimizer = make()
        models[0] = model  # of this process
        return model, optimizer

    def train(worker: int, joined: Joined) -> None:
        for step in range(40):
            models[0].zero_grad()
            inputs, targets = batch(worker, step)
            mse_loss(models[0](inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch's
            joined.clients[0].push()

    finals = run_to_end(SharedRun(4, Settings(Sync(), host=host, shards=shards)), make_mine, train)
    model, optimizer = make()
    for step in range(40):
        optimizer.zero_grad()
        parts = [batch(worker, step) for worker in range(4)]
        inputs, targets = (torch.cat(part) for part in zip(*parts, strict=True))
        mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
    for final in finals:
        for mine, expected in zip(final, model.parameters(), strict=True):
            torch.testing.assert_close(mine, expected.detach(), rtol=1e-12, atol=1e-14)


# --- staleness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", FREE)
def test_two_free_workers_have_a_mean_staleness_of_about_one(settings: Settings) -> None:
    # Each update of one lies between a pull and a push of the other, however unequal they are: the mean is one but for
    # the other's push that is under way when the budget is used up
    run = SharedRun(2, replace(settings, max_updates=300))
    run_to_end(run, zeros, push_constants(100_000, pause_s=0.003))
    assert 0.7 < run.staleness().mean() <= 1


def test_two_workers_of_a_server_have_between_a_half_and_one() -> None:
    # A worker pulls when the server has applied its push. Of two pushes that lie there together both are applied before
    # either pulls, so the workers' next ones have staleness 0 and 1: a half, where they fall into step, one where never
    run = SharedRun(2, Settings(host="process", max_updates=300))
    run_to_end(run, zeros, push_constants(100_000, pause_s=0.003))
    assert 0.35 < run.staleness().mean() <= 1


@pytest.mark.parametrize("host", HOSTS)
def test_softsync_of_all_workers_has_a_staleness_of_zero_to_two(host: HostName) -> None:
    # (workers - 1) / average: of four updates' workers one closes the round and pulls it at once, for three it comes
    # between a pull and a push. A server's workers pull sooner or later than it applies: from none to all of four
    run = SharedRun(4, Settings(Softsync(4), host=host, max_updates=60))
    run_to_end(run, zeros, push_constants(100_000, pause_s=0.004))
    low, high = (0.0, 1.0) if host == "process" else (0.55, 0.76)
    assert low <= run.staleness().mean() <= high
    assert run.staleness().quantile(0.9) <= 2


@pytest.mark.parametrize("rule", [Async(), Sync(), Softsync(2)])
def test_the_warm_up_is_worker_0_alone(rule: Rule) -> None:
    run = SharedRun(3, Settings(rule, warmup_updates=20, max_updates=20))
    run_to_end(run, zeros, push_constants(100, lambda worker: float(worker == 0)))
    shares = [m.applied for m in run.pushes()]
    assert shares == [20 * (2 if isinstance(rule, Softsync) else 1), 0, 0]
    assert run.staleness().max() == 0
