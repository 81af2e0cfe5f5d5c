import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.sim import DeclaredBytes
from scalebook.training.engine.worker_clock import Until
from scalebook.training.planner.play import play
from scalebook.training.pricing.links import NETWORKS, Network
from scalebook.training.pricing.profile import Profile
from tests.training.planner.sharing import closed_form

BYTES: Final = 1e6
ALONE_S: Final = 1.0
SHARED: Final = Link(bandwidth=BYTES / ALONE_S)
"""Of a transfer alone."""
MODEL: Final = 2_678_824
WIRE_S: Final = MODEL / 117.5e6


def ends(begin_s: Sequence[float], link: Link, server_link: Link, seed: int = 0) -> list[float]:
    """When pushes that workers begin at these times have been served."""
    clock = DeclaredBytes(ClockSettings(0.0, link=link, server_link=server_link), len(begin_s), 1, seed, BYTES, 0)
    agenda = [(at_s, worker) for worker, at_s in enumerate(begin_s)]
    steps = [clock.sends(worker, 0) for worker in range(len(begin_s))]
    later: dict[int, Callable[[], float]] = {}
    done = [0.0] * len(begin_s)
    while agenda:
        clock.time_s, worker = heapq.heappop(agenda)
        if worker in later and (later_s := later[worker]()) > clock.time_s:
            heapq.heappush(agenda, (later_s, worker))
            continue
        later.pop(worker, None)
        try:
            step = next(steps[worker])
            assert isinstance(step, Until)
            heapq.heappush(agenda, (step.at_s, worker))
            if step.later is not None:
                later[worker] = step.later
        except StopIteration:
            done[worker] = clock.time_s
    return done


@pytest.mark.parametrize("seed", range(5))
def test_a_transfer_alone_takes_its_bytes(seed: int) -> None:
    assert ends([0.0], SHARED, SHARED, seed) == [pytest.approx(ALONE_S, rel=1e-9)]
    slower = Link(latency_s=0.25, bandwidth=BYTES / 3)
    assert ends([0.0], slower, SHARED, seed) == [pytest.approx(3.25, rel=1e-9)]


@pytest.mark.parametrize("seed", range(5))
def test_two_share_a_link_and_lose_nothing_of_it(seed: int) -> None:
    """One after the other the first would end after 1 s. Of two that share evenly, the second half a second later,
    it ends after 1.5 s."""
    first, second = ends([0.0, 0.5], SHARED, SHARED, seed)
    assert max(first, second) == pytest.approx(2.0, rel=1e-9)
    assert min(first, second) > 1.1


def test_shares_are_even_on_the_average() -> None:
    """Of two at once each is the first as often. It ends after 1 s if it has all, after 2 s if it has half."""
    firsts = [ends([0.0, 0.0], SHARED, SHARED, seed) for seed in range(200)]
    assert sum(one < other for one, other in firsts) == pytest.approx(100, abs=25)
    assert 1.5 < sum(min(pair) for pair in firsts) / 200 < 1.9


def test_who_has_a_slow_link_takes_little_of_a_fast_one() -> None:
    quarter = Link(bandwidth=BYTES / 4)
    assert ends([0.0, 0.3, 0.6, 0.9], quarter, Link(bandwidth=BYTES * 10)) == [
        pytest.approx(begun_s + 4.0, rel=0.05) for begun_s in (0.0, 0.3, 0.6, 0.9)
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_memoryless_workers_that_share_a_link(workers: int) -> None:
    """Uneven shares, of which who is first takes more, lie up to a tenth above; first come first served lies 1.35
    times above for two."""
    profile = Profile(Distribution("exponential", 0.006), 1, MODEL, MODEL, network=NETWORKS["1gbe"])
    exact = closed_form(workers, 0.006 + 100e-6, WIRE_S)
    assert play(profile, workers, gradients=1000).updates_per_s / exact == pytest.approx(1.05, abs=0.08)


def test_two_drift_apart_and_three_meet() -> None:
    """As connections of TCP do at 1 Gbit/s: 18.7 updates/s of one, 37.5 of two, 31 of three, 35 of four."""
    profile = Profile(0.005, 1, MODEL, MODEL, 0.001, network=NETWORKS["1gbe"])
    one, two, three, four = (play(profile, workers, gradients=800).updates_per_s for workers in (1, 2, 3, 4))
    assert two == pytest.approx(2 * one, rel=0.01)
    assert three < two < 1 / WIRE_S
    assert three < four < 0.9 / WIRE_S


TENTH = Profile(gradient_s=0.1, batch_size=32, push_bytes=1e6, pull_bytes=2e6)


def test_workers_add_up_while_nothing_saturates() -> None:
    point = play(TENTH, 4)
    assert point.updates_per_s == pytest.approx(40)
    assert point.samples_per_s == pytest.approx(40 * 32)
    assert (point.compute, point.communicate, point.idle) == (1.0, 0.0, 0.0)
    assert (point.staleness, point.staleness_p95) == (3.0, 3)


@pytest.mark.parametrize(("workers", "updates_per_s"), [(1, 1 / 0.125), (4, 32.0), (5, 40.0), (6, 40.0), (20, 40.0)])
def test_a_server_takes_one_push_after_the_other(workers: int, updates_per_s: float) -> None:
    # N / (gradient + server), and never more than 1 / server
    point = play(Profile(0.1, 1, 1, 1, server_s=0.025), workers)
    assert point.updates_per_s == pytest.approx(updates_per_s, rel=5e-3)
    assert point.server_busy == pytest.approx(updates_per_s * 0.025, rel=0.02)
    assert point.server_queue == pytest.approx(workers - updates_per_s * 0.1, rel=0.03)  # the others compute
    assert point.compute == pytest.approx(updates_per_s * 0.1 / workers, rel=0.02)


def test_shards_serve_in_parallel_and_the_largest_decides() -> None:
    profile = Profile(0.1, 1, 1, 1, server_s=0.025, shard_shares={2: 0.75})
    assert play(profile, 20, shards=4).updates_per_s == pytest.approx(4 / 0.025, rel=1e-9)
    assert play(profile, 20, shards=2).updates_per_s == pytest.approx(1 / 0.75 / 0.025, rel=1e-9)


@pytest.mark.parametrize(("way", "busy"), [("push", (1.0, 0.5)), ("pull", (0.5, 1.0))])
def test_a_link_carries_so_many_bytes_a_second(way: str, busy: tuple[float, float]) -> None:
    push, pull = (2e6, 1e6) if way == "push" else (1e6, 2e6)
    network = Network(server_link=Link(bandwidth=2e7))
    point = play(Profile(0.1, 1, push, pull, network=network), 16, gradients=1200)
    # 2 MB at 20 MB/s, whichever way; what is under way when counting begins and ends is not whole
    assert point.updates_per_s == pytest.approx(10, rel=5e-3)
    assert [point.in_busy, point.out_busy] == pytest.approx(busy, rel=0.02)


def test_each_server_machine_has_a_link() -> None:
    network = Network(server_link=Link(bandwidth=2e7))
    profile = Profile(0.1, 1, 2e6, 1, network=network, server_machines="each")
    assert play(profile, 64, shards=4).updates_per_s == pytest.approx(40, rel=5e-3)


@pytest.mark.parametrize(("largest", "updates_per_s"), [(1 / 8, 80), (0.45, 10 / 0.45)])
def test_the_link_of_the_largest_shard_is_the_limit(largest: float, updates_per_s: float) -> None:
    """2 MB at 20 MB/s over one link take 0.1 s; the largest part of them is what the longest of eight links has."""
    network = Network(server_link=Link(bandwidth=2e7))
    profile = Profile(0.1, 1, 2e6, 1, network=network, server_machines="each", shard_shares={8: largest})
    assert play(profile, 64, shards=8).updates_per_s == pytest.approx(updates_per_s, rel=5e-3)


def test_a_worker_s_link_is_its_own() -> None:
    profile = Profile(0.25, 1, 500, 1000, network=Network(Link(0.125, 4000.0)))
    # gradient, two latencies, 500 and 1000 bytes at 4000 a second
    assert play(profile, 3).updates_per_s == pytest.approx(3 / (0.25 + 0.25 + 0.125 + 0.25), rel=1e-9)


def test_sync_takes_as_long_as_the_slowest_of_all() -> None:
    # the largest of N exponential draws has the mean H(N) = 1 + 1/2 + ... + 1/N
    profile = Profile(Distribution("exponential", 1.0), 10, 1, 1)
    point = play(profile, 8, Sync(), gradients=3000)
    harmonic = sum(1 / n for n in range(1, 9))
    assert point.updates_per_s == pytest.approx(1 / harmonic, rel=0.06)
    assert point.samples_per_s == pytest.approx(80 / harmonic, rel=0.06)
    assert point.idle == pytest.approx(1 - 1 / harmonic, abs=0.02)
    assert (point.staleness, point.dropped) == (0.0, 0.0)


def test_a_backup_drops_what_comes_late() -> None:
    # Two memoryless workers, the first counts. Both fresh (F): rate 2 to one fresh and one late (S), with an update. S:
    # rate 1 to S with an update, rate 1 to F with a drop. So S has 2/3 of the time, 4/3 updates a second, 2/3 drops.
    profile = Profile(Distribution("exponential", 1.0), 1, 1, 1)
    point = play(profile, 2, Sync(1), gradients=3000)
    assert point.updates_per_s == pytest.approx(4 / 3, rel=0.06)
    assert point.dropped == pytest.approx(1 / 3, abs=0.02)


def test_softsync_makes_an_update_of_so_many() -> None:
    point = play(TENTH, 8, Softsync(4))
    assert point.updates_per_s == pytest.approx(20, rel=1e-6)
    assert point.samples_per_s == pytest.approx(80 * 32, rel=1e-6)


def test_a_straggler_holds_bounded_back_to_its_own_pace() -> None:
    profile = Profile(0.1, 1, 1, 1, stragglers={3: 2.0})
    assert play(profile, 4, Bounded(2)).updates_per_s == pytest.approx(20, rel=0.01)
    assert play(profile, 4, Async()).updates_per_s == pytest.approx(35, rel=0.01)


def test_workers_of_one_machine_share_its_cores() -> None:
    point = play(TENTH, 8, cores=2)
    assert point.updates_per_s == pytest.approx(20, rel=1e-6)
    assert point.idle == pytest.approx(0.75, abs=0.01)
    applied = play(Profile(0.1, 1, 1, 1, server_s=0.025), 8, cores=2)
    assert applied.updates_per_s == pytest.approx(2 / 0.125, rel=5e-3)


def test_the_machine_repairman() -> None:
    # M/M/1//N (Feller 1968, XVII.7): the server is idle with p = 1 / sum N! / (N - k)! r^k, r = server / gradient
    workers, load = 4, 0.5
    idle = 1 / sum(math.factorial(workers) / math.factorial(workers - k) * load**k for k in range(workers + 1))
    profile = Profile(Distribution("exponential", 1.0), 1, 1, 1, server_s=Distribution("exponential", load))
    point = play(profile, workers, gradients=6000)
    assert point.updates_per_s == pytest.approx((1 - idle) / load, rel=0.02)
    assert point.server_busy == pytest.approx(1 - idle, rel=0.02)


def test_the_same_seed_gives_the_same_figures() -> None:
    profile = Profile(Distribution("gamma", 0.1, 0.3), 32, 1e6, 1e6, server_s=0.01)
    first, again, other = (play(profile, 6, Bounded(2), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.updates_per_s == pytest.approx(other.updates_per_s, rel=0.03)


def test_sums_of_gradients_count_all_of_them() -> None:
    point = play(TENTH, 4, Async(), local=Downpour(5, 1))
    assert point.updates_per_s == pytest.approx(8, rel=1e-6)
    assert point.samples_per_s == pytest.approx(40 * 32, rel=1e-6)
    assert point.staleness == pytest.approx(1.5)  # they push together, and have pulled before their last gradient


@pytest.mark.parametrize("rule", [Async(), Sync()], ids=repr)
def test_local_steps_send_a_part_of_the_bytes(rule: Rule) -> None:
    """Ten gradients a second; each push and pull takes 0.1 s on the worker's link: 16 in 1.6 + 0.2 s."""
    profile = Profile(0.1, 32, 1e6, 1e6, network=Network(link=Link(bandwidth=1e7)))
    dense, rare = play(profile, 4, rule), play(profile, 4, rule, local=LocalSGD(16))
    assert dense.samples_per_s == pytest.approx(4 * 32 / 0.3, rel=1e-6)
    assert rare.samples_per_s == pytest.approx(4 * 32 * 16 / 1.8, rel=1e-6)


@pytest.mark.parametrize(("gradient_s", "cycle_s"), [(0.1, 0.25), (0.25, 0.25), (0.5, 0.5)])
def test_a_gradient_hides_behind_a_push_and_a_pull_that_overlap_it(gradient_s: float, cycle_s: float) -> None:
    """There, served, back: 0.1 + 0.05 + 0.1 s. Without overlap they add up."""
    network = Network(Link(bandwidth=1e7), Link(bandwidth=1e9))
    profile = Profile(gradient_s, 1, 1e6, 1e6, server_s=0.05, network=network)
    assert play(profile, 1).updates_per_s == pytest.approx(1 / (gradient_s + 0.25), rel=1e-9)
    assert play(profile, 1, overlap=True).updates_per_s == pytest.approx(1 / cycle_s, rel=1e-9)
