"""Peers against closed forms: what mixing keeps, how fast it mixes, where skewed data lead, what noise leaves."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.coordination.membership import enter, leave
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Link
from scalebook.training.engine.rules.codecs import Bf16, Codec, Int8, Qsgd, RandomK, Sign, TopK
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, Gossip, PeerExchange, Sgp
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import (
    Complete,
    Exponential,
    OnePeerExponential,
    Ring,
    Topology,
    Torus,
    second_eigenvalue,
)
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.engine.worker.peer_client import PeerClient
from scalebook.training.engine.worker_clock import Until, Wait, Waits
from tests.training.engine.driven import driven
from tests.training.engine.peer_runs import PeerRun, run_peers
from tests.training.engine.sim.works import Asked

DOUBLE = torch.float64
ADAPT, COMBINE = DPsgd("adapt_first"), DPsgd("combine_first")


def normal(shape: Sequence[int], seed: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def scattered(workers: int, size: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> Any:
    """Gradients that scatter the peers in their first step, and are 0 from then on; and what the mean becomes."""
    apart = normal((workers, size), seed, dtype)
    nothing = torch.zeros(size, dtype=dtype)
    return (lambda worker, step, x: -apart[worker] if step == 0 else nothing), apart


EXCHANGES: Sequence[tuple[PeerExchange, Topology]] = [
    (ADAPT, Ring()), (COMBINE, Ring()), (ADAPT, Torus()), (ADAPT, Exponential()), (ADAPT, Complete()),
    (COMBINE, OnePeerExponential()), (Sgp(), OnePeerExponential()), (Sgp(), Exponential()), (AdPsgd(), Ring()),
    (AdPsgd(), Complete()), (Gossip(), Complete()),
]  # fmt: skip


@pytest.mark.parametrize(("exchange", "topology"), EXCHANGES, ids=repr)
def test_mixing_keeps_the_mean(exchange: PeerExchange, topology: Topology) -> None:
    gradient, apart = scattered(8, 5)
    run = run_peers(Peering(exchange, topology), 8, 12, gradient, torch.zeros(5, dtype=DOUBLE), watches=True)
    for mean in [*run.means[1:], run.mean]:
        torch.testing.assert_close(mean, run.means[1], rtol=0, atol=1e-12)
    if not isinstance(exchange, Gossip):  # whose steps count as much as the peer's weight at that moment
        torch.testing.assert_close(run.mean, apart.mean(0), rtol=0, atol=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize("codec", [Bf16(), Int8(), Qsgd(), Sign()], ids=repr)
def test_a_codec_keeps_the_mean_and_reaches_consensus(codec: Codec) -> None:
    """Differences become small, and with them what a codec loses of them."""
    gradient, apart = scattered(8, 64, dtype=torch.float32)
    run = run_peers(Peering(ADAPT, Ring(), codec=codec), 8, 121, gradient, torch.zeros(64), watches=True)
    torch.testing.assert_close(run.mean, apart.mean(0), rtol=0, atol=4e-6)  # of 120 rounds in fp32
    assert run.distances()[-1] < max(1e-10, 100 * distance_without_codec())


@cache
def distance_without_codec() -> float:
    gradient, _ = scattered(8, 64, dtype=torch.float32)
    return run_peers(Peering(ADAPT, Ring()), 8, 121, gradient, torch.zeros(64), watches=True).distances()[-1]


@pytest.mark.sampled
@pytest.mark.parametrize("codec", [TopK(0.1), RandomK(0.1)], ids=repr)
def test_a_codec_that_leaves_numbers_out_converges_with_a_smaller_mixing(codec: Codec) -> None:
    gradient, apart = scattered(8, 64, dtype=torch.float32)
    run = run_peers(Peering(ADAPT, Ring(), codec=codec, mixing=0.1), 8, 200, gradient, torch.zeros(64), watches=True)
    torch.testing.assert_close(run.mean, apart.mean(0), rtol=0, atol=1e-5)
    assert run.distances()[-1] < 0.2 * run.distances()[1]


@pytest.mark.parametrize("topology", [Ring(), Torus(), Exponential(), OnePeerExponential()], ids=repr)
def test_the_distance_falls_by_the_square_of_the_second_eigenvalue(topology: Topology) -> None:
    gradient, _ = scattered(16, 3)
    run = run_peers(Peering(ADAPT, topology), 16, 60, gradient, torch.zeros(3, dtype=DOUBLE), watches=True)
    distances = run.distances()
    if isinstance(topology, OnePeerExponential):
        assert distances[1] > 1e-3, "one round is not enough"
        assert distances[4] < 1e-28, "after log2 16 rounds all are equal"
        return
    expected = second_eigenvalue(topology, 16) ** 2
    late = 30
    assert (distances[late + 10] / distances[late]) ** (1 / 10) == pytest.approx(expected, rel=0.02)


def test_one_peer_is_plain_training_bit_for_bit() -> None:
    start, noise = normal((7,), 1, torch.float32), normal((20, 7), 2, torch.float32)

    def gradient(worker: int, step: int, x: Tensor) -> Tensor:
        return x * 0.5 + noise[step]

    for exchange in (ADAPT, COMBINE, Sgp(), AdPsgd(), Gossip()):
        run = run_peers(Peering(exchange, Ring()), 1, 20, gradient, start, lambda p: Adam(p, lr=0.1))
        alone = Parameter(start.clone())
        optimizer = Adam([alone], lr=0.1)
        for step in range(20):
            alone.grad = gradient(0, step, alone.detach())
            optimizer.step()
        assert torch.equal(run.parameters[0], alone.detach()), exchange


def test_of_two_peers_a_ring_is_complete() -> None:
    gradient, _ = scattered(2, 5)
    ring, complete = (
        run_peers(Peering(ADAPT, topology), 2, 3, gradient, torch.zeros(5, dtype=DOUBLE))
        for topology in (Ring(), Complete())
    )
    for worker in (0, 1):
        torch.testing.assert_close(ring.parameters[worker], complete.parameters[worker], rtol=0, atol=1e-15)


# --- against a server ----------------------------------------------------------------------------------------------


def on_a_server(
    workers: int,
    steps: int,
    gradient: Callable[[int, int, Tensor], Tensor],
    start: Tensor,
    make: Callable[[Sequence[Parameter]], Optimizer],
) -> Tensor:
    """The parameters after so many updates of `sync`."""
    timing = ClockSettings(gradient_s=1.0)
    clock = SimulatedClock(timing, workers)
    run = SharedRun(workers, Settings(host="virtual", clock=timing, rule=Sync()), clock)
    parameters: dict[int, Parameter] = {}
    made = [0] * workers

    def optimizers(worker: int) -> list[Optimizer]:
        parameters[worker] = Parameter(start.clone())
        return [make([parameters[worker]])]

    virtual = SimulatedWorkers(run, clock, optimizers, Asked(lambda worker: made[worker] < steps))
    virtual.begin_all()
    while (worker := virtual.next()) is not None:
        parameters[worker].grad = gradient(worker, made[worker], parameters[worker].detach())
        made[worker] += 1
        virtual.push()
    virtual.joined[0].pull()
    end = parameters[0].detach().clone()
    virtual.detach()
    run.close()
    return end


MOMENTUM: Callable[[Sequence[Parameter]], Optimizer] = lambda p: SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
PLAIN: Callable[[Sequence[Parameter]], Optimizer] = lambda p: SGD(p, lr=0.1)  # noqa: E731
ADAM: Callable[[Sequence[Parameter]], Optimizer] = lambda p: Adam(p, lr=0.1)  # noqa: E731


@pytest.mark.parametrize(("make", "is_equal"), [(PLAIN, True), (MOMENTUM, True), (ADAM, False)])
def test_the_complete_graph_is_sync_for_optimizers_that_are_linear_in_the_gradient(
    make: Callable[[Sequence[Parameter]], Optimizer], is_equal: bool
) -> None:
    start, minima, noise = normal((6,), 3, torch.float32), normal((4, 6), 4, torch.float32), normal((30, 4, 6), 5)

    def gradient(worker: int, step: int, x: Tensor) -> Tensor:
        return x - minima[worker] + 0.1 * noise[step, worker].float()

    run = run_peers(Peering(ADAPT, Complete()), 4, 30, gradient, start, make)
    server = on_a_server(4, 30, gradient, start, make)
    far = float((run.mean - server).abs().max())
    assert far < 2e-6 if is_equal else far > 1e-3
    if is_equal:
        late = run_peers(Peering(COMBINE, Complete()), 4, 30, gradient, start, make, watches=True)
        far = float((late.history[-1][1] - server).abs().max())
        assert far > 1e-2, "a step is of one worker's gradient, until it is mixed"


# --- skewed data and noise -----------------------------------------------------------------------------------------


def eigenvector(workers: int) -> Tensor:
    """Of the ring's second eigenvalue."""
    return torch.cos(2 * math.pi * torch.arange(workers, dtype=DOUBLE) / workers)


@pytest.mark.parametrize("order", ["adapt_first", "combine_first"])
def test_skewed_data_lead_to_the_fixed_point_of_their_order(order: Any) -> None:
    """On h (x - c_i)^2 / 2, with c along an eigenvector of W; what is left of the start falls by 0.7 a step."""
    workers, h, rate = 8, 0.7, 0.2
    c, eigenvalue = eigenvector(workers), second_eigenvalue(Ring(), workers)
    run = run_peers(
        Peering(DPsgd(order), Ring()), workers, 100, lambda w, step, x: h * (x - c[w]), torch.zeros(1, dtype=DOUBLE),
        lambda p: SGD(p, lr=rate), watches=True,
    )  # fmt: skip
    if order == "adapt_first":
        share = eigenvalue * rate * h / (1 - eigenvalue * (1 - rate * h))
    else:
        share = rate * h / (1 - eigenvalue + rate * h)
    torch.testing.assert_close(run.history[-1][:, 0], share * c, rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", ["adapt_first", "combine_first"])
def test_noise_leaves_the_stationary_distance_of_its_order(order: Any) -> None:
    workers, h, rate, size = 8, 1.0, 0.1, 400
    noise = torch.Generator().manual_seed(1)
    run = run_peers(
        Peering(DPsgd(order), Ring()), workers, 120,
        lambda w, step, x: h * x + torch.randn(size, generator=noise, dtype=DOUBLE), torch.zeros(size, dtype=DOUBLE),
        lambda p: SGD(p, lr=rate), watches=True,
    )  # fmt: skip
    values = [1 / 3 + 2 / 3 * math.cos(2 * math.pi * m / workers) for m in range(1, workers)]
    if order == "adapt_first":
        parts = [(v * rate) ** 2 / (1 - v**2 * (1 - rate * h) ** 2) for v in values]
    else:
        parts = [rate**2 / (1 - (v - rate * h) ** 2) for v in values]
    measured = sum(run.distances()[60:]) / len(run.distances()[60:]) / size
    assert measured == pytest.approx(sum(parts) / workers, rel=0.03)


# --- links, deaths and budgets -------------------------------------------------------------------------------------


def test_a_round_takes_what_its_links_take() -> None:
    """A gradient of 1 s; 40 bytes to each of two neighbours over a line of 80 bytes a second, and a latency at both
    ends."""
    clock = ClockSettings(gradient_s=1.0, link=Link(latency_s=0.125, bandwidth=80.0))
    gradient, _ = scattered(4, 5)
    start = torch.zeros(5, dtype=DOUBLE)
    adapt = run_peers(Peering(ADAPT, Ring()), 4, 6, gradient, start, clock=clock)
    assert adapt.clock.now() == pytest.approx(6 * (1.0 + 2 * 0.5 + 0.25))
    hidden = run_peers(Peering(COMBINE, Ring()), 4, 6, gradient, start, clock=clock)
    assert hidden.clock.now() == pytest.approx(7 * (2 * 0.5 + 0.25)), "the last exchange comes after the last step"
    one = run_peers(Peering(ADAPT, OnePeerExponential()), 4, 6, gradient, start, clock=clock)
    assert one.clock.now() == pytest.approx(6 * (1.0 + 0.5 + 0.25))
    everybody = run_peers(Peering(ADAPT, Complete()), 4, 6, gradient, start, clock=clock)
    assert everybody.clock.now() == pytest.approx(6 * (1.0 + 2 * 3 / 4 * 0.5 + 6 * 0.25)), "as a ring all-reduce"


def test_a_slow_peer_slows_rounds_and_nobody_else_where_nobody_waits() -> None:
    clock = ClockSettings(gradient_s=1.0, stragglers={2: 10.0})
    gradient, _ = scattered(4, 5)

    def seconds(exchange: PeerExchange) -> float:
        start = torch.zeros(5, dtype=DOUBLE)
        return run_peers(Peering(exchange, Ring()), 4, 30, gradient, start, clock=clock, max_updates=24).clock.now()

    assert seconds(ADAPT) == pytest.approx(240)
    assert seconds(AdPsgd()) <= 10
    assert seconds(Gossip()) <= 10


@pytest.mark.parametrize(("exchange", "topology"), EXCHANGES, ids=repr)
def test_the_others_go_on_when_peers_die_and_come_back(exchange: PeerExchange, topology: Topology) -> None:
    deaths = [Death(1, 2.5), Death(5, 4.5, back_s=7.25), Death(6, 5.5)]
    clock = ClockSettings(gradient_s=1.0, stragglers={3: 1.5}, deaths=deaths)
    gradient, _ = scattered(8, 5)
    run = run_peers(Peering(exchange, topology), 8, 60, gradient, torch.zeros(5, dtype=DOUBLE), clock=clock)
    living = [run.parameters[worker] for worker in run.run.control.living()]
    assert len(living) == 6
    spread = (torch.stack(living) - torch.stack(living).mean(0)).abs().max()
    assert spread < (0.2 if isinstance(exchange, AdPsgd | Gossip) else 1e-2), "they have come together"


@pytest.mark.parametrize(("exchange", "topology"), [case for case in EXCHANGES if case[0].waits], ids=repr)
def test_what_all_peers_have_stays_whoever_dies_within_a_round(exchange: PeerExchange, topology: Topology) -> None:
    """The share of a neighbour that has sent nothing is the peer's own; else all would shrink towards zero."""
    deaths = [Death(1, 2.5), Death(5, 4.5, back_s=7.25), Death(6, 5.5)]
    clock = ClockSettings(gradient_s=1.0, stragglers={3: 1.5}, deaths=deaths)
    one = torch.ones(5, dtype=DOUBLE)
    run = run_peers(
        Peering(exchange, topology), 8, 20, lambda worker, step, x: -one if step == 0 else 0 * one, 0 * one, clock=clock
    )
    for worker in run.run.control.living():
        assert torch.allclose(run.parameters[worker], one, atol=1e-12)


@pytest.mark.parametrize(("exchange", "topology"), EXCHANGES, ids=repr)
def test_the_budget_of_updates_is_met(exchange: PeerExchange, topology: Topology) -> None:
    gradient, _ = scattered(8, 5)
    clock = ClockSettings(gradient_s=1.0, stragglers={3: 2.5})
    run = run_peers(
        Peering(exchange, topology), 8, 100, gradient, torch.zeros(5, dtype=DOUBLE), clock=clock, max_updates=13
    )
    assert run.versions == run.run.counts().updates == 13


def test_the_same_run_again_to_the_last_bit() -> None:
    noise = normal((8, 40, 5), 7)
    clock = ClockSettings(gradient_s=1.0, stragglers={3: 2.5, 4: 0.5}, link=Link(0.01, 4000.0))

    def once(exchange: PeerExchange) -> PeerRun:
        torch.manual_seed(3)
        return run_peers(
            Peering(exchange, Complete()), 8, 40, lambda w, step, x: noise[w, step] + x, normal((5,), 9),
            lambda p: SGD(p, lr=0.1, momentum=0.5), clock=clock,
        )  # fmt: skip

    for exchange in (ADAPT, AdPsgd(), Gossip(), Sgp()):
        first, second = once(exchange), once(exchange)
        assert all(torch.equal(first.parameters[w], second.parameters[w]) for w in range(8)), exchange
        assert first.clock.now() == second.clock.now()


class Funnel(Topology):
    """All send to peer 0, which sends to all: directed, and as many come in as do not go out elsewhere."""

    name = "funnel"

    def neighbours(self, round_: int, peers: int) -> Sequence[Sequence[int]]:
        return [[other for other in range(1, peers) if round_ % 2 or other == 1], *[[0]] * (peers - 1)]

    def period(self, peers: int) -> int:
        return 2


def test_push_sum_is_right_on_a_graph_whose_rows_do_not_sum_to_one() -> None:
    gradient, apart = scattered(6, 4)
    for order in ("adapt_first", "combine_first"):
        run = run_peers(Peering(Sgp(order), Funnel()), 6, 150, gradient, torch.zeros(4, dtype=DOUBLE))
        torch.testing.assert_close(run.mean, apart.mean(0), rtol=0, atol=1e-12)
        for worker in range(6):
            torch.testing.assert_close(run.parameters[worker], apart.mean(0), rtol=0, atol=1e-6)


def test_a_step_counts_whole_whatever_the_weight() -> None:
    """The sum of all values is that of all steps."""
    noise = normal((6, 40, 4), 8)
    for order in ("adapt_first", "combine_first"):
        run = run_peers(
            Peering(Sgp(order), Funnel()), 6, 40, lambda w, step, x: noise[w, step], torch.zeros(4, dtype=DOUBLE)
        )
        torch.testing.assert_close(run.mean, -noise.sum(1).mean(0), rtol=0, atol=1e-11)


def test_nobody_changes_what_a_peer_computes_with() -> None:
    noise = normal((8, 60, 5), 7)
    clock = ClockSettings(gradient_s=1.0, stragglers={3: 5.0, 4: 0.5})
    run = run_peers(
        Peering(AdPsgd(), Complete()), 8, 60, lambda w, step, x: noise[w, step], normal((5,), 9), clock=clock
    )
    assert run.changed == 0
    assert run.run.staleness().mean() > 0.5


def test_who_meets_others_between_two_steps_still_mixes_the_round_under_way() -> None:
    """Without a gradient the mean stays, whoever has stepped aside for a meeting."""
    settings = Settings(local=Peering(COMBINE, Ring()))
    start = [torch.zeros(5, dtype=DOUBLE)]
    with driven(2, settings, start, lambda p: SGD(p, lr=1.0)) as run:
        for worker in (0, 1):
            run.push(worker, [normal((5,), worker)])
        before = (run.replicas[0][0] + run.replicas[1][0]).detach() / 2
        apart = float((run.replicas[0][0] - run.replicas[1][0]).detach().norm())
        leave(run.run.control, 0)
        enter(run.run.control, 0)
        for worker in (0, 1):
            run.push(worker, [torch.zeros(5, dtype=DOUBLE)])
        after = (run.replicas[0][0] + run.replicas[1][0]).detach() / 2
        torch.testing.assert_close(after, before, rtol=0, atol=1e-12)
        assert float((run.replicas[0][0] - run.replicas[1][0]).detach().norm()) < 0.6 * apart


def bytes_of(run: PeerRun, first: int) -> Mapping[int, tuple[int, int]]:
    """By worker, sent and received; without the first version, of so many bytes."""
    return {w: (t.pushed_bytes, t.pulled_bytes - first) for w, t in enumerate(run.run.worker_times())}


def test_bytes_are_counted_where_they_leave_and_where_they_come_in() -> None:
    gradient, _ = scattered(8, 5)
    start, nbytes = torch.zeros(5, dtype=DOUBLE), 40

    def each(exchange: PeerExchange, topology: Topology) -> set[tuple[int, int]]:
        return set(bytes_of(run_peers(Peering(exchange, topology), 8, 10, gradient, start), nbytes).values())

    assert each(ADAPT, Ring()) == {(20 * nbytes, 20 * nbytes)}
    assert each(ADAPT, Exponential()) == {(30 * nbytes, 30 * nbytes)}
    assert each(Sgp(), OnePeerExponential()) == {(10 * nbytes, 10 * nbytes)}
    assert each(ADAPT, Complete()) == {(10 * 2 * 7 * nbytes // 8, 10 * 2 * 7 * nbytes // 8)}


def test_less_often_and_all_together_now_and_then() -> None:
    gradient, apart = scattered(8, 5)
    start = torch.zeros(5, dtype=DOUBLE)
    rarely = run_peers(Peering(ADAPT, Ring(), every=4), 8, 12, gradient, start)
    assert rarely.versions == 3
    torch.testing.assert_close(rarely.mean, apart.mean(0), rtol=0, atol=1e-12)
    exact = run_peers(Peering(ADAPT, Ring(), global_every=3), 8, 3, gradient, start)
    torch.testing.assert_close(exact.parameters[4], apart.mean(0), rtol=0, atol=1e-12)


# --- the end -------------------------------------------------------------------------------------------------------

DIRECTED: Sequence[tuple[PeerExchange, Topology]] = [
    (ADAPT, Exponential()), (COMBINE, Exponential()), (ADAPT, OnePeerExponential()), (COMBINE, OnePeerExponential()),
    (Sgp(), Exponential()), (Sgp("combine_first"), OnePeerExponential()), (Sgp(), Ring()), (ADAPT, Ring()),
]  # fmt: skip


def mean_after_a_pause(
    exchange: PeerExchange, topology: Topology, gradients: Sequence[Tensor], held: int, at: int
) -> tuple[Tensor, bool]:
    """The mean that worker 0 reads when all have finished, and whether the pause came before `held` had finished.
    `gradients[w]`: those of worker w. Worker `held` stops where it waits for the `at`-th time, until no other can go
    on without it."""
    workers, start = len(gradients), torch.zeros(gradients[0].shape[1], dtype=DOUBLE)
    with driven(workers, Settings(local=Peering(exchange, topology)), [start], lambda p: SGD(p, lr=1.0)) as run:

        def waits_of(worker: int) -> Waits[None]:
            for gradient in gradients[worker]:
                run.replicas[worker][0].grad = gradient.clone()
                yield from run.joined[worker].clients[0].push_waits()
            yield from run.joined[worker].finish_waits()

        programs = {worker: waits_of(worker) for worker in range(workers)}
        waits: dict[int, Wait | Until | None] = dict.fromkeys(programs)
        passed, is_held = 0, False
        while programs:
            ready = [w for w in programs if (wait := waits[w]) is None or (isinstance(wait, Wait) and wait.ready())]
            others = [worker for worker in ready if worker != held]
            is_held |= passed == at
            chosen = others[0] if others and (passed >= at or held not in ready) else held
            passed += chosen == held
            try:
                waits[chosen] = next(programs[chosen])
            except StopIteration:
                del programs[chosen]
        client = run.joined[0].clients[0]
        assert isinstance(client, PeerClient)
        return client.mean()[0].clone(), is_held


@pytest.mark.sampled
@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize(("exchange", "topology"), DIRECTED, ids=repr)
def test_the_mean_at_the_end_has_every_step_whoever_is_late(
    exchange: PeerExchange, topology: Topology, workers: int
) -> None:
    """Also where some have a step less than others, and leave while these have begun another round with them."""
    for short in (0, workers // 2):
        gradients = [normal((3 - (w < short), 5), w) for w in range(workers)]
        expected = -torch.stack([steps.sum(0) for steps in gradients]).mean(0)
        for held in (0, workers // 2):
            at, is_held = 0, True
            while is_held:
                mean, is_held = mean_after_a_pause(exchange, topology, gradients, held, at)
                torch.testing.assert_close(mean, expected, rtol=0, atol=1e-12, msg=f"{held} held at {at}")
                at += 1
