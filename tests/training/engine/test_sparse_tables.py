"""Tables with sparse gradients: rows travel, and are applied, logged and read as rows. In real processes."""

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from allpairspy import AllPairs
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from scalebook.training.engine import Clip, HostName, Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove, Inverse
from scalebook.training.engine.rules.settings import REAL_HOSTS
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.store.gradient_transfer import ROW_NUMBER
from scalebook.training.engine.store.table_optimizer import mark_tables
from tests.training.engine.forking import LostProcess, Reaction, run_workers
from tests.training.engine.replay import replay
from tests.training.engine.towers import (
    DEADLINE_S,
    ROWS,
    WIDTH,
    Make,
    Towers,
    adagrad,
    batch,
    gradient,
    sgd,
    slow_sgd,
    sparse_adam,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own optimizers make such tensors


def plain(make: Make, steps: int, clip: Clip | None = None) -> list[Tensor]:
    """One process with torch's optimizer, the duplicates of each gradient summed."""
    model = Towers(make is not sparse_adam)
    optimizer = make(model.parameters())
    for number in range(steps):
        gradient(model, number)
        for table in (model.words.weight, model.bags.weight):
            assert table.grad is not None
            table.grad = table.grad.coalesce()
        given = [p.grad for p in model.parameters() if p.grad is not None]
        values = [g._values() if g.is_sparse else g for g in given]
        if clip is not None:
            norm = torch.cat([value.flatten() for value in values]).norm()
            for value in values:
                value.mul_((clip.limit / (norm + 1e-6)).clamp(max=1))
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


Body = Callable[[Joined, Towers, int], Any]


def in_processes(
    run: SharedRun, body: Body, make: Make = sgd, lost: Callable[[LostProcess], Reaction] = lambda one: Reaction.END
) -> list[Any]:
    """`body(joined, model, worker)` in each worker; beside them the servers that the run wants."""
    workers = run.control.workers

    def process(number: int) -> Any:
        model = Towers(make is not sparse_adam)
        optimizer = make(model.parameters())
        joined = join(run, run.member(number, DEADLINE_S), [optimizer], model=model)
        joined.start()
        joined.begin()
        return body(joined, model, number)

    def serves(number: int) -> None:
        model = Towers(make is not sparse_adam)
        serve(run, number, DEADLINE_S, [make(model.parameters())], model)

    return run_workers(workers, process, servers=run.servers, serve=serves, lost=lost)


def final(joined: Joined, model: nn.Module) -> list[Tensor]:
    joined.finish()
    joined.wait_for_others()
    joined.pull()
    parameters = [p.detach().clone() for p in model.parameters()]
    joined.detach()
    assert type(model.get_submodule("words")) is nn.Embedding
    return parameters


def trains(steps: int) -> Body:
    def body(joined: Joined, model: Towers, worker: int) -> list[Tensor]:
        for number in range(steps):
            gradient(model, worker * 1000 + number)
            joined.clients[0].push()
        return final(joined, model)

    return body


class TestOneWorker:
    @pytest.mark.each_value
    @pytest.mark.parametrize(
        ("make", "rule", "host", "shards"),
        list(AllPairs([[sgd, adagrad, sparse_adam], [Async(), Bounded(1), Sync()], [*REAL_HOSTS], [1, 2]])),
        ids=lambda value: getattr(value, "__name__", str(value)),
    )
    def test_is_one_process_bit_for_bit(self, make: Make, rule: Rule, host: HostName, shards: int) -> None:
        run = SharedRun(1, Settings(rule=rule, host=host, shards=shards))
        (weights,) = in_processes(run, trains(20), make)
        for mine, theirs in zip(weights, plain(make, 20), strict=True):
            assert torch.equal(mine, theirs)

    @pytest.mark.parametrize("rule", [Async(), Sync()], ids=str)
    def test_the_norm_that_is_clipped_is_that_of_the_rows(self, rule: Rule) -> None:
        clip = Clip("norm", 0.05)
        (weights,) = in_processes(SharedRun(1, Settings(rule=rule, clip=clip)), trains(5))
        for mine, theirs in zip(weights, plain(sgd, 5, clip), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)

    def test_bytes_are_those_of_rows(self) -> None:
        run = SharedRun(1, Settings())
        in_processes(run, trains(3))
        row, dense = ROW_NUMBER + 4 * WIDTH, 4 * (WIDTH + 1)
        pushed = read = 0
        for number in range(3):
            words, bags, _ = batch(number)
            pushed += len(set(words[words > 0].tolist())) + len(set(bags[bags > 0].tolist()))
            read += len(set(words.flatten().tolist())) + len(set(bags.flatten().tolist()))
        (measured,) = run.pushes()
        assert measured.pushed_bytes == pushed * row + 3 * dense
        pulls = 6  # at the join, at the start and at begin; after each push but the first two count as one; at the end
        assert (measured.pulled_bytes - read * row) % dense == 0
        assert measured.pulled_bytes - read * row <= (pulls + 3) * dense


class TestWorkers:
    @pytest.mark.each_value
    @pytest.mark.parametrize(
        ("rule", "host", "shards"), list(AllPairs([[Async(), Bounded(2), Softsync(2)], [*REAL_HOSTS], [1, 2]])), ids=str
    )
    def test_concurrent_pushes_sum_exactly(self, rule: Rule, host: HostName, shards: int) -> None:
        run = SharedRun(3, Settings(rule=rule, host=host, shards=shards))

        def body(joined: Joined, model: Towers, worker: int) -> list[Tensor]:
            for _ in range(40):
                model.words.weight.grad = sparse_ones([worker, 7, 7], ROWS)
                model.bags.weight.grad = sparse_ones([worker], 50)
                joined.clients[0].push()
            return final(joined, model)

        moved = [w - first for w, first in zip(in_processes(run, body, ones)[0], Towers().parameters(), strict=True)]
        per = 0.5 if rule.gathers else 1.0  # what one gradient counts in an average of two
        words, bags = torch.zeros(ROWS, WIDTH), torch.zeros(50, WIDTH)
        words[:3], words[7], bags[:3] = -40 * per, -240 * per, -40 * per
        torch.testing.assert_close(moved[0], words, rtol=0, atol=1e-4)
        torch.testing.assert_close(moved[1], bags, rtol=0, atol=1e-4)
        assert sum(p.applied for p in run.pushes()) == 120 * shards

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_sync_averages_rows_that_not_all_have(self, host: HostName) -> None:
        run = SharedRun(2, Settings(rule=Sync(), host=host))
        first, second = in_processes(run, trains(10))
        model = Towers()
        optimizer = sgd(model.parameters())
        for number in range(10):
            optimizer.zero_grad()
            for worker in range(2):
                (model(*batch(worker * 1000 + number)) / 2).backward()
            optimizer.step()
        for one, other, alone in zip(first, second, model.parameters(), strict=True):
            assert torch.equal(one, other)
            torch.testing.assert_close(one, alone.detach(), rtol=1e-5, atol=1e-6)

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        "settings",
        [
            Settings(damping=Inverse()),
            Settings(damping=DelayCompensation(adaptive=False), drift=True),
            Settings(damping=DropAbove(1), shards=2),
            Settings(host="process", rule=Bounded(3), clip=Clip("norm", 0.1)),
            Settings(rule=Softsync(2)),
        ],
        ids=str,
    )
    def test_a_run_is_replayed_bit_for_bit(self, settings: Settings, tmp_path: Path) -> None:
        """So every gradient was computed from the rows of the version pulled, whatever was written meanwhile."""
        traced = Settings(**{**vars(settings), "trace": tmp_path})
        run = SharedRun(3, traced)
        weights = in_processes(run, trains(30), slow_sgd)[0]
        run.close()
        model = Towers()
        mark_tables(model)

        def compute(worker: int, seq: int) -> None:
            gradient(model, worker * 1000 + seq - 1)

        replay(tmp_path, settings, slow_sgd(model.parameters()), compute)
        for mine, theirs in zip(weights, model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.isfinite().all()


def ones(parameters: Iterable[Parameter]) -> Optimizer:
    return SGD(parameters, lr=1.0)


def sparse_ones(rows: list[int], of: int) -> Tensor:
    indices = torch.tensor([rows])
    return torch.sparse_coo_tensor(indices, torch.ones(len(rows), WIDTH), (of, WIDTH), check_invariants=False)


@pytest.mark.sampled
@pytest.mark.parametrize("host", REAL_HOSTS)
def test_a_worker_that_is_killed_leaves_whole_pushes(host: HostName) -> None:
    """Its rows say how many: as many as the newest version has of it. Nothing is lost or done twice, nobody hangs."""
    run, killed = SharedRun(3, Settings(host=host)), 2

    def body(joined: Joined, model: Towers, worker: int) -> tuple[list[int], list[Tensor]]:
        if worker == killed:  # by the kernel's timer, wherever it is then
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        for _ in range(10**6 if worker == killed else 150):
            model.words.weight.grad = sparse_ones([worker, 7], ROWS)
            model.bags.weight.grad = sparse_ones([worker], 50)
            joined.clients[0].push()
        joined.finish()
        joined.wait_for_others()
        (shard,) = joined.clients[0].host.partition.shards
        return [shard.applied(one) for one in range(3)], final(joined, model)

    def lost(one: LostProcess) -> Reaction:
        assert one.number == killed
        run.mark_dead(killed)
        return Reaction.GO_ON

    (applied, weights), other, none = in_processes(run, body, ones, lost)
    assert none is None
    assert other[0] == applied
    assert applied[:2] == [150, 150]
    words, bags, *_ = (w - first for w, first in zip(weights, Towers().parameters(), strict=True))
    counted = -torch.tensor(applied, dtype=torch.float32)
    torch.testing.assert_close(words[:3], counted[:, None].expand(3, WIDTH), rtol=0, atol=1e-2)
    torch.testing.assert_close(bags[:3], counted[:, None].expand(3, WIDTH), rtol=0, atol=1e-2)
    torch.testing.assert_close(words[7], counted.sum().expand(WIDTH), rtol=0, atol=1e-2)
