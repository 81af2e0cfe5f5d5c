"""The contract of a host, over both, each with one shard and with three; real processes, public interface only."""

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from allpairspy import AllPairs
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam

from scalebook.training.engine import Client, HostName, Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.memory.region import BINS, FIRST_BIN, METER, SAMPLES
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.settings import REAL_HOSTS
from scalebook.training.engine.rules.update_rules import Async, Bounded, Softsync, Sync
from tests.training.engine.forking import run_workers

pytestmark = pytest.mark.sampled

DEADLINE_S = 20.0
Body = Callable[[Joined, list[Parameter], int], Any]


def in_processes(run: SharedRun, body: Body, optimizer: Callable[[list[Parameter]], Any]) -> list[Any]:
    """`body(joined, parameters, worker)` in each worker, and the servers that the run wants."""
    workers = run.control.workers

    def process(number: int) -> Any:
        parameters = [Parameter(torch.zeros(5, 3)), Parameter(torch.zeros(7)), Parameter(torch.zeros(2))]
        made = optimizer(parameters)
        if number >= workers:
            return serve(run, number - workers, DEADLINE_S, [made])
        joined = join(run, run.member(number, DEADLINE_S), [made])
        joined.begin()
        return body(joined, parameters, number)

    return run_workers(workers + run.servers, process)[:workers]


def counting(parameters: list[Parameter]) -> SGD:
    """With gradients of ones: the parameters count the updates, downwards."""
    return SGD(parameters, lr=1.0)


def pushes(client: Client, parameters: list[Parameter], count: int, pause_s: float = 0.0) -> int:
    """Pushes of ones until `count` or the budget; how many were let in."""
    done = 0
    for _ in range(count):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        time.sleep(pause_s)
        pushed = client.push()
        done += pushed.applied
        if pushed.is_last:
            break
    return done


def final(joined: Joined, parameters: list[Parameter]) -> list[float]:
    """The distinct values of all parameters when everybody has finished."""
    joined.finish()
    joined.wait_for_others()
    joined.pull()
    return sorted({float(value) for p in parameters for value in p.detach().flatten()})


def everywhere(test: Callable[..., None]) -> Callable[..., None]:
    """On each host with one shard and with three; a commit runs each of them once."""
    cases = pytest.mark.parametrize(("host", "shards"), list(product(REAL_HOSTS, [1, 3])))
    marked: Callable[..., None] = pytest.mark.each_value(cases(test))
    return marked


class TestHost:
    @everywhere
    def test_concurrent_pushes_sum_exactly(self, host: HostName, shards: int) -> None:
        run = SharedRun(3, Settings(host=host, shards=shards))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
            pushes(joined.clients[0], parameters, 100)
            return final(joined, parameters)

        assert in_processes(run, body, counting) == [[-300.0]] * 3
        assert run.counts().updates == 300
        assert [row.applied for row in run.pushes()] == [100] * 3 * shards
        assert run.staleness().counts.sum(1).tolist() == [100] * 3
        assert all(row.age_s > 0 and row.duplicates == 0 for row in run.pushes())

    @everywhere
    def test_a_budget_of_updates_is_exact(self, host: HostName, shards: int) -> None:
        run = SharedRun(3, Settings(host=host, shards=shards, max_updates=50))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> tuple[int, list[float]]:
            return pushes(joined.clients[0], parameters, 1000, 0.001), final(joined, parameters)

        found = in_processes(run, body, counting)
        assert sum(done for done, _ in found) == 50
        assert [values for _, values in found] == [[-50.0]] * 3

    @pytest.mark.parametrize(
        ("told", "host", "shards"),
        list(AllPairs([[(Bounded(1), 60), (Sync(), 20), (Softsync(2), 30)], [*REAL_HOSTS], [1, 3]])),
        ids=str,
    )
    def test_every_rule_applies_what_it_says(self, host: HostName, shards: int, told: tuple[Any, int]) -> None:
        rule, updates = told
        run = SharedRun(3, Settings(host=host, shards=shards, rule=rule))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
            pushes(joined.clients[0], parameters, 20, 0.001 * worker)
            return final(joined, parameters)

        assert in_processes(run, body, counting) == [[-float(updates)]] * 3
        assert run.counts().updates == updates
        assert sum(row.applied for row in run.pushes()) == 60 * shards

    @everywhere
    def test_nothing_staler_than_the_limit_is_applied(self, host: HostName, shards: int) -> None:
        run = SharedRun(3, Settings(host=host, shards=shards, damping=DropAbove(1)))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> tuple[int, list[float]]:
            return pushes(joined.clients[0], parameters, 30, 0.001), final(joined, parameters)

        found = in_processes(run, body, counting)
        applied = sum(done for done, _ in found)
        assert [values for _, values in found] == [[-float(applied)]] * 3
        assert run.staleness().max() <= 1
        assert sum(row.dropped for row in run.pushes()) == 90 - applied

    @everywhere
    def test_one_worker_is_plain_training_bit_for_bit(self, host: HostName, shards: int) -> None:
        def adam(parameters: list[Parameter]) -> Adam:
            return Adam(parameters, lr=0.1)

        def train(step: Callable[[], object], parameters: list[Parameter]) -> list[Tensor]:
            generator = torch.Generator().manual_seed(4)
            for _ in range(10):
                for parameter in parameters:
                    parameter.grad = torch.randn(parameter.shape, generator=generator)
                step()
            return [parameter.detach().clone() for parameter in parameters]

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[Tensor]:
            weights = train(joined.clients[0].push, parameters)
            joined.finish()
            return weights

        run = SharedRun(1, Settings(host=host, shards=shards, trace=None, drift=True))
        (found,) = in_processes(run, body, adam)
        plain = [Parameter(torch.zeros(5, 3)), Parameter(torch.zeros(7)), Parameter(torch.zeros(2))]
        expected = train(adam(plain).step, plain)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert all(row.drift == 0.0 for row in run.pushes())

    @everywhere
    def test_drift_is_what_the_others_moved(self, host: HostName, shards: int) -> None:
        run = SharedRun(2, Settings(host=host, shards=shards, rule=Async(), drift=True))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
            if worker == 0:  # has pulled, and pushes when the other has made four updates
                run.control.set_counter(0, SAMPLES, 1)
                while run.counts().updates < 4:
                    time.sleep(0.001)
            while not run.control.counter(0, SAMPLES):
                time.sleep(0.001)
            pushes(joined.clients[0], parameters, 1 if worker == 0 else 4)
            return final(joined, parameters)

        in_processes(run, body, counting)
        slow = [row for row in run.pushes() if row.worker == 0]
        assert sum(row.drift**2 for row in slow) ** 0.5 == pytest.approx(4 * 24**0.5)  # 24 elements, each 4 away
        assert run.staleness().counts[0, 4] == 1

    @pytest.mark.parametrize(("average", "host", "shards"), list(AllPairs([[2, 3], [*REAL_HOSTS], [1, 3]])))
    def test_drift_in_a_round_is_from_each_gradients_own_base(self, host: HostName, shards: int, average: int) -> None:
        """Every update moves each of 24 elements by 1, so a drift is the staleness times the root of 24. Nobody holds
        the base of a gradient that waits for its round."""
        run = SharedRun(3, Settings(host=host, shards=shards, rule=Softsync(average), drift=True))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
            if worker == 0:  # has pulled, and pushes when others have made four updates: the first in a round, or not
                run.control.set_counter(0, SAMPLES, 1)
                run.control.event.wait(lambda: run.counts().updates >= 4, DEADLINE_S, lambda: "four updates")
            run.control.event.wait(lambda: run.control.counter(0, SAMPLES) > 0, DEADLINE_S, lambda: "worker 0 to pull")
            pushes(joined.clients[0], parameters, 30)
            return final(joined, parameters)

        in_processes(run, body, counting)
        for worker in range(3):
            elements = 0.0  # of all shards, from each one's drift and its own staleness, which differ between servers
            for row in [one for one in run.pushes() if one.worker == worker]:
                first = worker * METER + FIRST_BIN
                counts = run.control.partition_counters[0].shards[row.shard].meters[first : first + BINS].tolist()
                assert worker > 0 or sum(counts[4:]) > 0
                elements += (row.drift * sum(counts) / sum(i * count for i, count in enumerate(counts))) ** 2
            assert elements == pytest.approx(24)


@pytest.mark.alone
def test_a_worker_computes_while_its_push_is_applied() -> None:
    class Slow(SGD):
        def step(self, closure: Any = None) -> Any:
            time.sleep(0.05)
            return super().step(closure)

    def seconds(host: HostName) -> float:
        run = SharedRun(1, Settings(host=host))

        def body(joined: Joined, parameters: list[Parameter], worker: int) -> float:
            started = time.monotonic()
            pushes(joined.clients[0], parameters, 8, pause_s=0.05)
            spent = time.monotonic() - started
            assert final(joined, parameters) == [-8.0]
            return spent

        return float(in_processes(run, body, lambda p: Slow(p, lr=1.0, momentum=1e-30))[0])

    assert seconds("overlap") < 0.65 * seconds("process")
