"""Virtual workers with real gradients, and queues and links, against what theory says of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link
from scalebook.training.engine.rules.codecs import HEADER, Bf16, Int8, Sign, TopK
from scalebook.training.engine.rules.damping import Inverse
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.trace import read_updates
from tests.training.engine.sim.works import Asked

pytestmark = pytest.mark.long

Make = Callable[[Sequence[Parameter]], Optimizer]
Compute = Callable[[int, Sequence[Parameter]], None]
"""Of the run's next batch, by number, with a worker's parameters: fills `.grad`."""


@dataclass
class Played:
    """What a run has left behind. `pushed`: (time, worker) of each gradient, when its worker had computed it."""

    clock: SimulatedClock
    parameters: list[Tensor]
    staleness: list[int]  # of updates, in order; empty without a trace
    updates: int
    computed: list[float]  # seconds, by worker
    pushed: list[tuple[float, int]] = field(default_factory=list)

    def speed(self, first: int, last: int = -1) -> float:
        """Gradients a second, between these two."""
        last %= len(self.pushed)
        return (last - first) / (self.pushed[last][0] - self.pushed[first][0])


def play(
    timing: ClockSettings,
    workers: int,
    gradients: int,
    settings: Settings,
    start: Sequence[Tensor],
    make: Make = lambda parameters: SGD(parameters, lr=0.01),
    compute: Compute | None = None,
    seed: int = 0,
) -> Played:
    """A whole run: `gradients` in all, the next batch to whoever begins next. The start's own values as gradients
    unless `compute`."""
    clock = SimulatedClock(timing, workers, settings.shards, seed)
    run = SharedRun(workers, settings, clock)
    parameters: dict[int, list[Parameter]] = {}
    taken: dict[int, int] = {}
    number = iter(range(gradients))

    def made(worker: int) -> list[Optimizer]:
        parameters[worker] = [Parameter(tensor.clone()) for tensor in start]
        return [make(parameters[worker])]

    def wants(worker: int) -> bool:
        taken[worker] = next(number, -1)
        return taken[worker] >= 0

    virtual = SimulatedWorkers(run, clock, made, Asked(wants))
    virtual.begin_all()
    pushed = []
    while (worker := virtual.next()) is not None:
        pushed.append((clock.now(), worker))
        if compute is None:
            for parameter, tensor in zip(parameters[worker], start, strict=True):
                parameter.grad = tensor.clone()
        else:
            compute(taken[worker], parameters[worker])
        virtual.push()
    shards = virtual.partitions[0].shards
    whole = {place: view for one in shards for place, view in zip(one.plan.parameters, newest(one), strict=True)}
    computed = [times.compute for times in run.worker_times()]
    played = Played(
        clock, [whole[place].clone() for place in sorted(whole)], [], run.counts().updates, computed, pushed
    )
    if settings.trace is not None:
        updates = read_updates(settings.trace, 0, 0, settings.most(workers), 1, shards[0].version)
        played.staleness = [one.version - 1 - one.base_version for update in updates for one in update]
    virtual.detach()
    run.close()
    return played


def newest(shard: Shard) -> list[Tensor]:
    """The parameters of its newest version."""
    return shard.views[shard.newest().buffer]


# --- a small regression ----------------------------------------------------------------------------------------------

BATCH = 8


def layers() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(BATCH, 5, generator=generator), torch.randn(BATCH, 2, generator=generator)) for _ in range(count)
    ]


def loss_of(parameters: Sequence[Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
    model = layers()
    names = [name for name, _ in model.named_parameters()]
    out = torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (batch[0],))
    return nn.functional.mse_loss(out, batch[1])


def regression(count: int) -> Compute:
    data = batches(count)

    def compute(number: int, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = None
        loss_of(parameters, data[number]).backward()  # type: ignore[no-untyped-call]

    return compute


def start() -> list[Tensor]:
    return [parameter.detach().clone() for parameter in layers().parameters()]


def plain(make: Make, each: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """What the optimizer gives by itself."""
    parameters = [Parameter(tensor) for tensor in start()]
    optimizer = make(parameters)
    for batch in each:
        optimizer.zero_grad()
        loss_of(parameters, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda parameters: SGD(parameters, lr=0.1),
    "momentum": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: Adam(parameters, lr=0.01),
}
SLOW = ClockSettings(
    Distribution("gamma", 0.1, 0.5), server_s=Distribution("exponential", 0.02), link=Link(1e-3, 1e5)
)  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize("rule", [Async(), Bounded(1), Sync(), Softsync(1)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_worker_is_the_plain_optimizer_to_the_last_bit(rule: Rule, name: str) -> None:
    made = play(SLOW, 1, 20, Settings(rule), start(), OPTIMIZERS[name], regression(20))
    for ours, theirs in zip(made.parameters, plain(OPTIMIZERS[name], batches(20)), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sync_is_the_n_fold_batch(name: str) -> None:
    workers, updates = 4, 12
    made = play(
        ClockSettings(0.1), workers, workers * updates, Settings(Sync()), start(), OPTIMIZERS[name], regression(48)
    )
    few = batches(workers * updates)
    joined = [few[i : i + workers] for i in range(0, len(few), workers)]
    large = [(torch.cat([one[0] for one in some]), torch.cat([one[1] for one in some])) for some in joined]
    for ours, theirs in zip(made.parameters, plain(OPTIMIZERS[name], large), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("workers", [2, 5, 64])
def test_the_staleness_of_equal_workers_is_one_less_than_they_are(workers: int, tmp_path: Path) -> None:
    made = play(ClockSettings(0.1), workers, workers * 6, Settings(trace=tmp_path), [torch.ones(1)])
    assert made.staleness == [*range(workers), *[workers - 1] * (workers * 5)]


@pytest.mark.sampled
@pytest.mark.parametrize("server_process", [False, True])
def test_who_completes_a_round_pulls_before_a_server_process_has_applied_it(
    server_process: bool, tmp_path: Path
) -> None:
    # Of each update's gradients the last comes with a version more or less in its worker's hands: N - 1 others between
    # a pull and a push, or N with that worker's own round
    workers, average = 8, 4
    timing = ClockSettings(Distribution("gamma", 0.1, 0.3), server_process=server_process)
    made = play(timing, workers, 8000, Settings(Softsync(average), trace=tmp_path), [torch.ones(1)])
    expected = (workers - 1 + server_process) / average
    assert sum(made.staleness) / len(made.staleness) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("rule", [Async(), Bounded(2), Sync(), Sync(1)])
def test_where_a_push_waits_for_its_update_a_server_process_changes_nothing(rule: Rule) -> None:
    timing = ClockSettings(Distribution("gamma", 0.1, 0.3), server_s=0.01)
    here, there = (
        play(timing, 4, 80, Settings(rule), start(), compute=regression(80))
        for timing in (timing, replace(timing, server_process=True))
    )
    assert here.pushed == there.pushed
    for ours, theirs in zip(here.parameters, there.parameters, strict=True):
        assert torch.equal(ours, theirs)


def test_two_runs_give_the_same_trace_and_weights_to_the_byte(tmp_path: Path) -> None:
    timing = ClockSettings(
        Distribution("lognormal", 0.1, 0.4),
        {2: 2.0},
        Distribution("gamma", 0.003, 0.5),
        Link(Distribution("uniform", 1e-3, 0.3), 1e5),
        {1: Link(0.01, 1e4)},
        Link(0.0, Distribution("lognormal", 3e5, 0.2)),
        [Death(1, 0.5, 0.9), Death(3, 1.0)],
    )

    def once(folder: str, seed: int) -> tuple[Played, dict[str, bytes]]:
        settings = Settings(Bounded(3), Inverse(), warmup_updates=2, shards=2, trace=tmp_path / folder)
        made = play(timing, 4, 60, settings, start(), OPTIMIZERS["adam"], regression(60), seed)
        return made, {path.name: path.read_bytes() for path in sorted((tmp_path / folder).iterdir())}

    (first, trace), (second, again), (other, _) = once("first", 1), once("second", 1), once("other", 2)
    assert len(trace) > 2
    assert trace == again
    assert first.pushed == second.pushed
    assert first.pushed != other.pushed
    for one, two in zip(first.parameters, second.parameters, strict=True):
        assert torch.equal(one, two)
    lost = [at_s for at_s, worker in first.pushed if worker == 1 and 0.5 <= at_s < 0.9]
    assert lost == []
    assert max(at_s for at_s, worker in first.pushed if worker == 3) < 1.0
    assert min(at_s for at_s, worker in first.pushed if worker == 1 and at_s > 0.5) > 0.9


# --- what saturates ------------------------------------------------------------------------------------------------


def test_a_saturated_link_of_the_servers_makes_bandwidth_by_bytes_updates() -> None:
    # 1000 bytes at 1 MB/s: 1000 updates a second, and 16 workers of 2 ms would make 16 / (2 + 1 + 1) ms = 4000
    timing = ClockSettings(0.002, server_link=Link(bandwidth=1e6))
    made = play(timing, 16, 1600, Settings(), [torch.ones(250)])
    assert made.speed(800) == pytest.approx(1000, rel=1e-9)
    few = play(timing, 2, 200, Settings(), [torch.ones(250)])
    assert few.speed(100, 180) == pytest.approx(2 / 0.004, rel=1e-9)


def test_a_slow_link_of_a_worker_is_its_own() -> None:
    timing = ClockSettings(0.25, link=Link(0.125, 4000.0), links={1: Link(0.125, 500.0)})
    made = play(timing, 3, 60, Settings(), [torch.ones(125)])  # 500 bytes
    times = {worker: [at_s for at_s, who in made.pushed if who == worker] for worker in range(3)}
    gaps = {worker: {b - a for a, b in pairwise(some)} for worker, some in times.items()}
    assert gaps == {0: {0.75}, 1: {2.5}, 2: {0.75}}  # gradient + 2 latencies + 2 transfers


@pytest.mark.parametrize(
    ("settings", "up", "down"),
    [
        (Settings(), 4096, 4096),
        (Settings(push_codec=Bf16()), 2048 + HEADER, 4096),
        (Settings(push_codec=TopK(0.125), pull_codec=Int8(), shards=1), 128 * 8 + HEADER, 1024 + 8 + HEADER),
        (Settings(rule=Sync(), push_codec=Sign(), pull_codec=Sign()), 136 + HEADER, 136 + HEADER),
    ],
    ids=["fp32", "bf16", "topk-int8", "sign-sync"],
)
def test_links_carry_the_bytes_of_the_frames(settings: Settings, up: int, down: int) -> None:
    timing = ClockSettings(0.25, link=Link(bandwidth=1024.0))
    made = play(timing, 2, 40, settings, [torch.linspace(1, 2, 1024)])
    times = [at_s for at_s, who in made.pushed if who == 1]
    assert {b - a for a, b in pairwise(times)} == {0.25 + (up + down) / 1024}


@pytest.mark.parametrize(("workers", "speed"), [(1, 1 / 1.25), (3, 3 / 1.25), (5, 4.0), (16, 4.0)])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_server_is_a_queue(workers: int, speed: float, shards: int) -> None:
    # constant times: N workers make N / (gradient + server) updates a second, and never more than 1 / server
    timing = ClockSettings(1.0, server_s=0.25)
    made = play(timing, workers, workers * 40, Settings(shards=shards), [torch.ones(4), torch.ones(4)])
    assert made.speed(workers * 20, workers * 39) == pytest.approx(speed, rel=1e-9)


@pytest.mark.thorough
def test_memoryless_workers_and_server_are_the_machine_repairman() -> None:
    # M/M/1//N (Feller 1968, XVII.7): with r = server / gradient the server is idle with p = 1 / sum N! / (N - k)! r^k
    workers, load = 4, 0.5
    idle = 1 / sum(math.factorial(workers) / math.factorial(workers - k) * load**k for k in range(workers + 1))
    timing = ClockSettings(Distribution("exponential", 1.0), server_s=Distribution("exponential", load))
    made = play(timing, workers, 20_000, Settings(), [torch.ones(1)])
    assert made.speed(1000) == pytest.approx((1 - idle) / load, rel=0.02)
    assert made.clock.servers[0].busy_s / made.clock.now() == pytest.approx(1 - idle, rel=0.02)


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_a_straggler_under_bounded_holds_all_back_by_the_bound(bound: int) -> None:
    # push n of a fast one waits for push n - bound of the straggler, which takes 2 s each, and then takes 1 s
    made = play(ClockSettings(1.0, {3: 2.0}), 4, 400, Settings(Bounded(bound)), [torch.ones(1)])
    times = [at_s for at_s, worker in made.pushed if worker == 0]
    expected = [max(float(n), 2.0 * (n - bound) + 1) for n in range(1, len(times) + 1)]
    assert len(times) > 90
    assert times[:90] == expected[:90]


# --- spare workers: late ones finish, or stop ----------------------------------------------------------------------


def harmonic(terms: int) -> float:
    return math.fsum(1 / k for k in range(1, terms + 1))


@pytest.mark.thorough
def test_late_workers_that_stop_make_rounds_by_the_order_statistics_of_the_textbook() -> None:
    # The N-th of N + b exponential times of mean 1 comes after H(N + b) - H(b) in the mean (David and Nagaraja 2003)
    workers, spare, rounds = 6, 2, 2000
    timing = ClockSettings(Distribution("exponential", 1.0))
    ends, stops = (
        play(timing, workers + spare, workers * rounds, virtually(rule, timing), [torch.ones(1)])
        for rule in (Sync(spare), Sync(spare, cancel=True))
    )
    expected = harmonic(workers + spare) - harmonic(spare)
    assert stops.updates == rounds, "nothing was computed in vain"
    assert stops.clock.now() / rounds == pytest.approx(expected, rel=0.03)
    assert ends.clock.now() / ends.updates > 1.1 * expected, "they finish first, and lack in the next round"


def test_a_late_worker_that_stops_begins_anew_with_its_batch_and_its_seconds_are_those_it_computed() -> None:
    # the third worker is due at 3 s, the others make an update every second: it never comes to its first batch
    timing, seen = ClockSettings(1.0, {2: 3.0}), list[int]()

    def compute(number: int, parameters: Sequence[Parameter]) -> None:
        seen.append(number)
        parameters[0].grad = torch.ones(1)

    made = play(timing, 3, 13, virtually(Sync(1, cancel=True), timing), [torch.zeros(1)], compute=compute)
    assert seen == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2], "the others have no batch any more: now it is done"
    assert [at_s for at_s, _ in made.pushed][::2] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0]
    assert made.updates == 7
    assert made.computed == [6.0, 6.0, 9.0]


def virtually(rule: Rule, timing: ClockSettings) -> Settings:
    return Settings(rule, host="virtual", clock=timing)
