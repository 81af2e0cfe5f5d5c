"""What anybody's rules and dampings can do, over both hosts: real processes through the public interface."""

from collections.abc import Sequence

import pytest
from allpairspy import AllPairs
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.engine import HostName, Joined, Settings, SharedRun
from scalebook.training.engine.rules.damping import Damping
from scalebook.training.engine.rules.settings import REAL_HOSTS
from scalebook.training.engine.rules.update_rules import Arrival, Rule, View
from tests.training.engine.test_hosts import counting, everywhere, final, in_processes, pushes

pytestmark = pytest.mark.sampled

WORKERS = 3
PUSHES = 20


class NotOf(Rule):
    """Refuses one worker's gradients."""

    def __init__(self, worker: int) -> None:
        self.worker = worker

    def accepts(self, arrival: Arrival, view: View) -> bool:
        assert set(view.clocks) <= set(range(WORKERS))
        return arrival.worker != self.worker


class Fresh(Rule):
    """Refuses what is stale at all."""

    def accepts(self, arrival: Arrival, view: View) -> bool:
        assert arrival.version == view.version
        return arrival.staleness == 0


class Until(Rule):
    """Refuses everything from a version on."""

    def __init__(self, version: int) -> None:
        self.version = version

    def accepts(self, arrival: Arrival, view: View) -> bool:
        return view.version < self.version


class InTurn(Rule):
    """Only who is furthest behind may begin."""

    def may_begin(self, worker: int, view: View) -> bool:
        return worker == min(view.clocks, key=lambda other: (view.clocks[other], other))


class AllBut(Rule):
    """Averages the first gradients of any versions."""

    gradients_per_update = "workers - spared"

    def __init__(self, spared: int = 1) -> None:
        self.spared = spared


class Greedy(AllBut):
    """Asks for more than it declares."""

    def needed(self, view: View) -> int:
        return 99


class OneVersion(Rule):
    """As `sync`, of what a class declares alone."""

    gradients_per_update = "workers"
    synchronous = True


class Halved(Damping):
    """Half of each gradient."""

    def compensate(
        self, gradient: Tensor, newest: Tensor, base: Tensor, mean_square: Tensor | None, out: Tensor
    ) -> None:
        assert mean_square is None
        out.copy_(gradient).mul_(0.5)


class Quartered(Damping):
    """A quarter of the learning rate."""

    def rate(self, stalenesses: Sequence[int]) -> float:
        return 0.25


def trained(run: SharedRun) -> list[float]:
    """The distinct values of the parameters of all workers at the end, when each has pushed ones."""

    def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
        pushes(joined.clients[0], parameters, PUSHES, 0.001)
        return final(joined, parameters)

    found: list[list[float]] = in_processes(run, body, counting)
    assert all(one == found[0] for one in found)
    return found[0]


def counted(run: SharedRun) -> tuple[list[int], list[int]]:
    """Of each worker, those applied and those dropped, at the first shard."""
    rows = [row for row in run.pushes() if row.shard == 0]
    return [row.applied for row in rows], [row.dropped for row in rows]


class TestRule:
    @pytest.mark.parametrize(("budget", "host", "shards"), list(AllPairs([[None, 2 * PUSHES], [*REAL_HOSTS], [1, 3]])))
    def test_it_may_refuse_a_worker(self, host: HostName, shards: int, budget: int | None) -> None:
        run = SharedRun(WORKERS, Settings(NotOf(1), host=host, shards=shards, max_updates=budget))
        assert trained(run) == [-2.0 * PUSHES]
        applied, dropped = counted(run)
        assert applied == [PUSHES, 0, PUSHES]
        assert dropped[0] == dropped[2] == 0
        assert dropped[1] == PUSHES if budget is None else dropped[1] <= PUSHES

    @everywhere
    def test_what_it_refuses_by_staleness_is_exact(self, host: HostName, shards: int) -> None:
        run = SharedRun(WORKERS, Settings(Fresh(), host=host, shards=shards))
        values = trained(run)
        applied, dropped = counted(run)
        assert values == [-float(sum(applied))]
        assert run.staleness().max() == 0
        assert sum(applied) + sum(dropped) == WORKERS * PUSHES
        assert sum(applied) > 0

    @everywhere
    def test_what_it_refuses_by_version_is_exact(self, host: HostName, shards: int) -> None:
        run = SharedRun(WORKERS, Settings(Until(7), host=host, shards=shards))
        assert trained(run) == [-7.0]
        assert sum(counted(run)[1]) == WORKERS * PUSHES - 7

    @everywhere
    def test_it_may_let_workers_wait(self, host: HostName, shards: int) -> None:
        run = SharedRun(WORKERS, Settings(InTurn(), host=host, shards=shards))
        assert trained(run) == [-float(WORKERS * PUSHES)]
        assert counted(run) == ([PUSHES] * WORKERS, [0] * WORKERS)
        assert run.staleness().max() == 0

    @pytest.mark.parametrize(
        ("rule", "host", "shards"), list(AllPairs([[AllBut(), Greedy()], [*REAL_HOSTS], [1, 3]])), ids=str
    )
    def test_it_may_average_as_many_as_it_declares(self, host: HostName, shards: int, rule: Rule) -> None:
        run = SharedRun(WORKERS, Settings(rule, host=host, shards=shards))
        updates = WORKERS * PUSHES // (WORKERS - 1)
        assert trained(run) == [-float(updates)]
        assert counted(run)[1] == [0] * WORKERS
        assert run.counts().updates == updates

    @everywhere
    def test_it_may_be_synchronous(self, host: HostName, shards: int) -> None:
        run = SharedRun(WORKERS, Settings(OneVersion(), host=host, shards=shards))
        assert trained(run) == [-float(PUSHES)]
        assert run.staleness().max() == 0

    @pytest.mark.parametrize(
        ("damping", "host", "shards"), list(AllPairs([[Halved(), Quartered()], [*REAL_HOSTS], [1, 3]])), ids=str
    )
    def test_a_damping_may_correct_or_scale(self, host: HostName, shards: int, damping: Damping) -> None:
        factor = 0.5 if isinstance(damping, Halved) else 0.25
        run = SharedRun(WORKERS, Settings(damping=damping, host=host, shards=shards))
        assert trained(run) == [-factor * WORKERS * PUSHES]


def test_who_may_refuse_does_not_overlap() -> None:
    settings = Settings(Fresh(), host="overlap")
    with pytest.raises(
        ValueError, match=r"cannot be combined with Fresh, because this rule may refuse a gradient\. Set host: process"
    ):
        settings.check(WORKERS)
