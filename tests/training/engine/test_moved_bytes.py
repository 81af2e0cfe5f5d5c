"""The bytes that a run says it has moved, against the tensors that were handed over while it did."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine import HostName, Settings
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.local_steps import Downpour, Local, NoLocalSteps
from scalebook.training.engine.rules.settings import REAL_HOSTS
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.store.shard import Newest, Shard
from scalebook.training.engine.store.slots import Slots
from scalebook.training.engine.worker.replica import Replica
from tests.training.engine.driven import DEADLINE_S, Driven, driven

WORKERS = 3
STEPS = 12
SHAPES = ((4, 3), (5,), (7, 2))


class Seen:
    """Sizes of the tensors that pass by: gradients that are applied as they are pushed, or laid into slots; versions
    that replicas become."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_slots: bool) -> None:
        self.pushed: list[int] = []
        self.pulled: list[int] = []
        apply, write, take = Shard.apply, Slots.write, Replica.load_versions

        def applied(shard: Shard, origins: Any, gradients: Sequence[Tensor | None], *rest: Any) -> bool:
            if not has_slots:
                self.pushed.append(sum(one.nbytes for one in gradients if one is not None))
            return apply(shard, origins, gradients, *rest)

        def written(slots: Slots, slot: int, origins: Any, gradients: list[Tensor | None], *rest: Any) -> None:
            self.pushed.append(sum(one.nbytes for one in gradients if one is not None))
            write(slots, slot, origins, gradients, *rest)

        def taken(replica: Replica, versions: Sequence[Newest], whole: bool = False) -> Sequence[int]:
            told = take(replica, versions, whole)
            self.pulled.append(sum(p.nbytes for place, p in enumerate(replica.parameters) if is_as(replica, place)))
            return told

        monkeypatch.setattr(Shard, "apply", applied)
        monkeypatch.setattr(Slots, "write", written)
        monkeypatch.setattr(Replica, "load_versions", taken)


def is_as(replica: Replica, place: int) -> bool:
    """Whether the parameter is the version held; what is frozen was once, when it had no other content yet."""
    return place not in replica.frozen and bool(torch.equal(replica.parameters[place], replica._published(place)))


def train(run: Driven, worker: int) -> None:
    """Some pushes; without a gradient of the second parameter in every third, one of them of no use."""
    for step in range(STEPS):
        ones = [torch.ones(shape) for shape in SHAPES]
        gradients = [one if place != 1 or step % 3 else None for place, one in enumerate(ones)]
        run.push(worker, gradients, valid=step != 4)


@pytest.mark.each_value
@pytest.mark.parametrize("host", REAL_HOSTS)
@pytest.mark.parametrize(
    "settings",
    [
        {"rule": Async()}, {"local": Downpour(2, 1)}, {"local": Downpour(1, 3)},
        {"local": Downpour(2, 3)}, {"rule": Bounded(bound=2)}, {"rule": Sync()},
        {"rule": Sync(backup_workers=1)}, {"rule": Softsync(average=2)}, {"damping": DropAbove(limit=0)},
    ],
    ids=lambda given: "-".join(repr(one) for one in given.values()),
)  # fmt: skip
def test_what_is_counted_is_what_was_moved(
    settings: dict[str, Any], host: HostName, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: Rule = settings.get("rule", Async())
    local: Local = settings.get("local", NoLocalSteps())
    seen = Seen(monkeypatch, has_slots=rule.gathers or host == "process")
    start = [torch.ones(shape) for shape in SHAPES]
    with (
        driven(WORKERS, Settings(host=host, shards=2, **settings), start, lambda p: SGD(p, lr=0.01)) as run,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        for part in [pool.submit(finish, run, worker) for worker in range(WORKERS)]:
            part.result(DEADLINE_S)
        times = run.run.worker_times()
    whole = sum(torch.ones(shape).nbytes for shape in SHAPES)
    assert sum(one.pushed_bytes for one in times) == sum(seen.pushed) > 0
    assert sum(one.pulled_bytes for one in times) == sum(seen.pulled) > 0
    if local.n_fetch > 1:
        assert [one.pulled_bytes for one in times] == [(2 + STEPS // local.n_fetch) * whole] * WORKERS
    if local.n_push > 1:
        assert all(one.pushed_bytes <= STEPS // local.n_push * whole for one in times)


def finish(run: Driven, worker: int) -> None:
    train(run, worker)
    run.joined[worker].finish()


def test_parameters_that_need_no_gradient_are_taken_once() -> None:
    def make(parameters: Sequence[Parameter]) -> SGD:
        parameters[2].requires_grad_(False)
        return SGD(parameters, lr=0.01)

    start = [torch.ones(shape) for shape in SHAPES]
    with driven(1, Settings(), start, make) as run:
        for _ in range(STEPS):
            run.push(0, [torch.ones(4, 3), torch.ones(5), None])
        (told,) = run.run.worker_times()
    assert told.pushed_bytes == STEPS * 4 * (12 + 5)
    assert told.pulled_bytes == 4 * (12 + 5 + 14) + (STEPS + 1) * 4 * (12 + 5), "first all, then what may change"
