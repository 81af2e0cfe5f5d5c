"""With `push_every`, what is left of a sum at the end is pushed: all updates together are all gradients together."""

from typing import Any

import pytest
import torch
from torch.nn import Parameter

from scalebook.training.ps import HostName, Joined, Settings, SharedRun
from scalebook.training.ps.policy.rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.ps.policy.settings import REAL_HOSTS
from tests.pairs import pairs
from tests.training.ps.driven import driven
from tests.training.ps.test_hosts import counting, final, in_processes

pytestmark = pytest.mark.alike

SIZE = 4 * (5 * 3 + 7 + 2)  # bytes of the parameters of `in_processes`


class SummedBounded(Bounded):
    push_every = 3


class SummedSync(Sync):
    push_every = 3


class SummedSoftsync(Softsync):
    push_every = 3


def trained(run: SharedRun, counts: tuple[int, ...]) -> list[float]:
    """Gradients of ones, so many of each worker; the values of all parameters at the end."""

    def body(joined: Joined, parameters: list[Parameter], worker: int) -> list[float]:
        for _ in range(counts[worker]):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            joined.clients[0].push()
        return final(joined, parameters)

    found: list[list[float]] = in_processes(run, body, counting)
    assert all(one == found[0] for one in found)
    return found[0]


class TestRest:
    @pytest.mark.parametrize(
        ("rule", "host", "shards"),
        pairs([Async(3), Async(3, 2), Async(3, 3), SummedBounded(2)], [*REAL_HOSTS], [1, 3]),
        ids=str,
    )
    def test_where_each_push_is_an_update(self, rule: Rule, shards: int, host: HostName) -> None:
        run = SharedRun(3, Settings(rule, host=host, shards=shards))
        assert trained(run, (10, 8, 6)) == [-24.0]
        assert run.counts().updates == 4 + 3 + 2
        assert [row.applied for row in run.pushes() if row.shard == 0] == [4, 3, 2]
        assert [times.pushed_bytes for times in run.worker_times()] == [4 * SIZE, 3 * SIZE, 2 * SIZE]

    @pytest.mark.parametrize("host", REAL_HOSTS)
    @pytest.mark.parametrize("rule", [SummedSync(), SummedSoftsync(2)], ids=repr)
    def test_where_two_are_averaged(self, rule: Rule, host: HostName) -> None:
        run = SharedRun(2, Settings(rule, host=host))
        assert trained(run, (8, 8)) == [-8.0]
        assert run.counts().updates == 3

    @pytest.mark.parametrize("host", REAL_HOSTS)
    @pytest.mark.parametrize(("counts", "value"), [((8, 6), -8.0), ((6, 8), -8.0), ((7, 3), -7.0)])
    def test_a_round_does_not_wait_for_who_has_nothing_left(
        self, counts: tuple[int, int], value: float, host: HostName
    ) -> None:
        """Each of the first has sums of 3, which are averaged; who goes on alone makes the rest."""
        run = SharedRun(2, Settings(SummedSync(), host=host))
        assert trained(run, counts) == [value]

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_the_budget_of_updates_stays_exact(self, host: HostName) -> None:
        run = SharedRun(1, Settings(Async(3), host=host, max_updates=2))
        assert trained(run, (8,)) == [-6.0]
        assert run.counts().updates == 2

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_with_the_rate_of_its_last_gradient_and_only_once(self, host: HostName) -> None:
        start = [torch.zeros(2, dtype=torch.float64)]
        with driven(1, Settings(Async(3), host=host), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
            (group,) = run.joined[0].clients[0].optimizer.param_groups
            for rate in (1.0, 0.5, 0.25, 0.125, 0.0625):
                group["lr"] = rate
                run.push(0, [torch.ones(2, dtype=torch.float64)])
            group["lr"] = 0.0
            assert run.joined[0].push_rest()
            assert run.joined[0].push_rest()
            assert run.newest()[0].tolist() == [-3 * 0.25 - 2 * 0.0625] * 2

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_without_a_usable_gradient_there_is_none(self, host: HostName) -> None:
        start: list[Any] = [torch.zeros(1)]
        with driven(1, Settings(Async(2), host=host), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
            run.push(0, [torch.full((1,), torch.inf)], valid=False)
            assert run.joined[0].push_rest()
            assert run.newest()[0].tolist() == [0.0]
            assert run.run.counts().updates == 0
