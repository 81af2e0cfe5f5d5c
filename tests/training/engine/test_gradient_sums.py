"""With `downpour`, what is left of a sum at the end is pushed: all updates together are all gradients together."""

from typing import Any

import pytest
import torch
from allpairspy import AllPairs
from torch.nn import Parameter

from scalebook.training.engine import HostName, Joined, Settings, SharedRun
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.settings import REAL_HOSTS
from tests.training.engine.driven import driven
from tests.training.engine.test_hosts import counting, final, in_processes

pytestmark = pytest.mark.sampled

SIZE = 4 * (5 * 3 + 7 + 2)  # bytes of the parameters of `in_processes`


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
        ("n_fetch", "host", "shards"),
        list(AllPairs([[1, 2, 3], [*REAL_HOSTS], [1, 3]])),
        ids=str,
    )
    def test_they_are_in_the_weights(self, n_fetch: int, shards: int, host: HostName) -> None:
        run = SharedRun(3, Settings(local=Downpour(3, n_fetch), host=host, shards=shards))
        assert trained(run, (10, 8, 6)) == [-24.0]
        assert run.counts().updates == 4 + 3 + 2
        assert [row.applied for row in run.pushes() if row.shard == 0] == [4, 3, 2]
        assert [times.pushed_bytes for times in run.worker_times()] == [4 * SIZE, 3 * SIZE, 2 * SIZE]

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_the_budget_of_updates_stays_exact(self, host: HostName) -> None:
        run = SharedRun(1, Settings(local=Downpour(3, 1), host=host, max_updates=2))
        assert trained(run, (8,)) == [-6.0]
        assert run.counts().updates == 2

    @pytest.mark.parametrize("host", REAL_HOSTS)
    def test_with_the_rate_of_its_last_gradient_and_only_once(self, host: HostName) -> None:
        start = [torch.zeros(2, dtype=torch.float64)]
        with driven(1, Settings(local=Downpour(3, 1), host=host), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
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
        with driven(1, Settings(local=Downpour(2, 1), host=host), start, lambda p: torch.optim.SGD(p, lr=1.0)) as run:
            run.push(0, [torch.full((1,), torch.inf)], valid=False)
            assert run.joined[0].push_rest()
            assert run.newest()[0].tolist() == [0.0]
            assert run.run.counts().updates == 0
