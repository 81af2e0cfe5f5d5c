"""How many versions virtual workers hold at a time, and what they keep of their own, beside what memory is planned for
and said before the start."""

import gc

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link
from scalebook.training.engine.rules.codecs import Int8
from scalebook.training.engine.rules.local_steps import Downpour, Elastic, LocalSGD
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.engine.worker.worker_end import MemoryNeed
from tests.training.engine.sim.works import Asked

WORKERS = 64
GRADIENTS = 20 * WORKERS
TENSOR = 1024  # bytes
DRAWN = Distribution("gamma", 0.1, 0.4)
EVENTFUL = ClockSettings(
    DRAWN,
    {5: 3.0, 9: 0.2},
    server_s=1e-4,
    link=Link(Distribution("exponential", 0.01)),
    deaths=[Death(3, 0.35, 0.8), Death(7, 0.52), Death(0, 0.6, 0.61), Death(5, 1.0, 1.1)],
)


def peak(rule: Rule, timing: ClockSettings, warmup: int) -> tuple[int, int, MemoryNeed]:
    """Distinct versions held or newest, at most, when a gradient is due; versions planned; and what was announced."""
    clock = SimulatedClock(timing, WORKERS)
    run = SharedRun(WORKERS, Settings(rule, warmup_updates=warmup), clock)
    parameters: dict[int, Parameter] = {}
    told: list[MemoryNeed] = []
    left = iter(range(GRADIENTS))

    def made(worker: int) -> list[Optimizer]:
        parameters[worker] = Parameter(torch.zeros(TENSOR // 4))
        return [SGD([parameters[worker]], lr=0.01)]

    begun: dict[int, torch.Tensor] = {}

    def begins(worker: int) -> None:
        begun[worker] = parameters[worker].detach().clone()

    work = Asked(lambda worker: next(left, -1) >= 0)
    workers = SimulatedWorkers(run, clock, made, work, begins=begins, announce=told.append)
    workers.begin_all()
    (shard,) = workers.partitions[0].shards
    most = 0
    while (worker := workers.next()) is not None:
        held = set(shard.counters.held.tolist()) - {-1}
        most = max(most, len(held | {shard.newest().buffer}))
        assert torch.equal(begun[worker], parameters[worker]), "written over while somebody computed from it"
        parameters[worker].grad = torch.ones(TENSOR // 4)
        workers.push()
    planned = shard.plan.buffers
    workers.detach()
    run.close()
    return most, planned, told[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rule", "timing", "warmup", "held", "planned"),
    [
        (Sync(), ClockSettings(DRAWN), 0, 1, 2),
        (Sync(), EVENTFUL, 0, 1, 2),
        (Sync(), EVENTFUL, 3, 2, 3),
        (Sync(4), EVENTFUL, 0, 5, 6),
        (Softsync(8), EVENTFUL, 0, WORKERS, WORKERS + 2),
        (Bounded(2), EVENTFUL, 0, WORKERS, WORKERS + 1),
        (Async(), EVENTFUL, 2, WORKERS, WORKERS + 1),
    ],
    ids=["sync", "sync, deaths", "sync, warm-up", "sync, 4 backup", "softsync", "bounded", "async"],
)
def test_no_more_versions_than_can_differ(
    rule: Rule, timing: ClockSettings, warmup: int, held: int, planned: int
) -> None:
    most, there, need = peak(rule, timing, warmup)
    assert there == planned
    assert held / 4 < most <= held
    sums = 1 if rule.gathers else 0
    assert planned + sums <= need.shared / TENSOR < planned + sums + 2, "versions, and the sum of a round"
    assert need.gradients == TENSOR * (1 if timing.link == Link() else WORKERS)


LARGE = 2**16
"""Bytes of a tensor beside which those of counters and of a scalar state are nothing."""


@pytest.fixture
def unseen() -> None:
    """Garbage collection does not look any more at what was made before: to go through it all takes a second."""
    gc.collect()
    gc.freeze()


def private(shared: int) -> int:
    """Bytes of all memory that tensors made since `unseen` have, each once, without that of the run, of so many."""
    gc.collect()
    storages = [one.untyped_storage() for one in gc.get_objects() if type(one) in (torch.Tensor, Parameter)]
    return sum({one.data_ptr(): one.nbytes() for one in storages if one.nbytes() != shared}.values())


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (Settings(Sync(), local=LocalSGD(2)), 1 + 2 + 1),
        (Settings(Async(), local=Elastic(2)), 1 + 2 + 1),
        (Settings(local=Downpour(1, 2)), 1 + 1),
        (Settings(local=Downpour(2, 1)), 1 + 1),
        (Settings(Sync(), pull_codec=Int8(64)), 1 + 4),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("unseen")
def test_what_workers_keep_of_their_own_is_told_too(settings: Settings, kept: int) -> None:
    """Parameters, Adam's averages and what the last step made (where steps are their own), sums of gradients; what was
    decoded, and scratch."""
    many, told = 16, list[MemoryNeed]()
    clock = SimulatedClock(ClockSettings(DRAWN), many)
    run = SharedRun(many, settings, clock)
    parameters: dict[int, Parameter] = {}
    make: type[Adam | SGD] = Adam if settings.local.steps else SGD
    left = iter(range(4 * many))

    def made(worker: int) -> list[Optimizer]:
        parameters[worker] = Parameter(torch.zeros(LARGE // 4))
        return [make([parameters[worker]])]

    workers = SimulatedWorkers(run, clock, made, Asked(lambda worker: next(left, -1) >= 0), announce=told.append)
    workers.begin_all()
    (need,) = told
    pushes, peak = 0, 0
    while (worker := workers.next()) is not None:
        parameters[worker].grad = torch.ones(LARGE // 4)
        workers.push()
        pushes += 1
        if pushes in (many // 2, 4 * many):  # to look takes long
            peak = max(peak, private(need.shared))
        parameters[worker].grad = None
    workers.detach()
    run.close()
    assert need.replicas == pytest.approx(many * kept * LARGE, rel=0.01)
    assert 0.9 * peak < need.replicas + need.gradients < 1.1 * peak
