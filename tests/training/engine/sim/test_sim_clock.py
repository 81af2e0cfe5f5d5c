"""What a virtual clock draws, and how long what queues takes."""

import random
import statistics

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link, MachineGroup
from scalebook.training.engine.sim import Line, SimulatedClock
from scalebook.training.engine.sim.sim_clock import Draws
from scalebook.training.engine.worker_clock import Until, Waits


@pytest.mark.parametrize(
    ("of", "cv"),
    [
        (Distribution("uniform", 2.0, 0.3), 0.3),
        (Distribution("exponential", 2.0), 1.0),
        (Distribution("lognormal", 2.0, 0.5), 0.5),
        (Distribution("gamma", 2.0, 0.5), 0.5),
        (Distribution("lognormal", 2.0, 0.0), 0.0),
        (Distribution("gamma", 2.0, 0.0), 0.0),
        (Distribution("gamma", 0.0, 0.5), None),
        (Distribution("lognormal", 0.0, 0.5), None),
        (Distribution("recorded", 2.0, 0.5, "a run", None, [1.0, 3.0]), 0.5),
    ],
)
def test_draws_have_the_mean_and_the_spread(of: Distribution, cv: float | None) -> None:
    draws = Draws(seed=3)
    drawn = [draws.value(of, "gradient", 0) for _ in range(40_000)]
    assert min(drawn) >= 0
    assert statistics.fmean(drawn) == pytest.approx(of.mean, rel=0.02)
    if cv is not None:
        assert statistics.stdev(drawn) / of.mean == pytest.approx(cv, rel=0.03, abs=1e-12)


def test_the_order_of_asking_changes_nothing() -> None:
    of, first, second = Distribution("gamma", 1.0, 0.5), Draws(7), Draws(7)
    in_turn = [[first.value(of, "gradient", worker) for worker in range(3)] for _ in range(5)]
    one_by_one = [[second.value(of, "gradient", worker) for _ in range(5)] for worker in (2, 0, 1)]
    assert [list(row) for row in zip(*in_turn, strict=True)] == [one_by_one[1], one_by_one[2], one_by_one[0]]
    assert second.value(of, "server", 0) != Draws(7).value(of, "gradient", 0)
    assert Draws(8).value(of, "gradient", 0) != Draws(7).value(of, "gradient", 0)


def test_a_queue_with_memoryless_arrivals_waits_as_m_d_1() -> None:
    # Pollaczek-Khinchine for a constant service time s at load r: the mean wait is r s / (2 (1 - r))
    for load in (0.5, 0.8):
        draw, line, now, waits = random.Random(5), Line(), 0.0, []
        for _ in range(200_000):
            now += draw.expovariate(load)
            waits.append(line.serve(now, 1.0) - 1.0 - now)
        assert statistics.fmean(waits) == pytest.approx(load / (2 * (1 - load)), rel=0.04)
        assert line.busy_s == 200_000


def seconds(clock: SimulatedClock, steps: Waits[None]) -> float:
    """What the steps take when nobody else does anything."""
    began = clock.time_s
    for step in steps:
        assert isinstance(step, Until)
        assert step.at_s > clock.time_s
        clock.time_s = step.at_s
    return clock.time_s - began


def test_the_slower_link_decides() -> None:
    settings = ClockSettings(
        1.0, server_s=0.5, link=Link(0.25, 100.0), links={1: Link(0.25, 1000.0)}, server_link=Link(0.125, 200.0)
    )
    clock = SimulatedClock(settings, workers=2, shards=3)
    assert seconds(clock, clock.sends(0, 400)) == 0.25 + 0.125 + 4.0 + 0.5  # its own link; each shard has served it
    assert seconds(clock, clock.sends(1, 400)) == 0.25 + 0.125 + 2.0 + 0.5  # the servers' link
    assert seconds(clock, clock.receives(0, 400)) == 4.0 + 0.25 + 0.125
    assert [line.busy_s for line in clock.servers] == [1.0] * 3


def test_both_directions_are_free_at_the_same_time() -> None:
    clock = SimulatedClock(ClockSettings(1.0, server_link=Link(bandwidth=100.0)), workers=4)
    ends = [next(steps) for steps in (clock.sends(0, 100), clock.sends(1, 100), clock.receives(2, 100))]
    assert ends == [Until(1.0), Until(2.0), Until(1.0)]


def test_what_takes_no_time_is_no_step() -> None:
    clock = SimulatedClock(ClockSettings(1.0), workers=1)
    assert list(clock.sends(0, 10**9)) == []
    clock.play(clock.receives(0, 10**9))  # or it would refuse to wait
    assert clock.now() == 0.0


def test_stragglers_take_longer() -> None:
    clock = SimulatedClock(ClockSettings(2.0, stragglers={1: 1.5}), workers=2)
    assert [clock.gradient_s(worker) for worker in (0, 1)] == [2.0, 3.0]


# --- groups of machines that split a model ---------------------------------------------------------------------------


def gradients(
    gradient_s: float | Distribution, group: MachineGroup | None, count: int = 1, seed: int = 3
) -> list[float]:
    clock = SimulatedClock(ClockSettings(gradient_s, group=group), workers=1, seed=seed)
    return [clock.gradient_s(0) for _ in range(count)]


@pytest.mark.parametrize(("machines", "phases"), [(2, 1), (8, 4), (32, 2)])
def test_each_phase_of_a_group_takes_the_slowest_of_exponential_draws(machines: int, phases: int) -> None:
    """Of K draws the largest has the mean H_K = 1 + ... + 1/K and the variance 1 + ... + 1/K^2."""
    taken = gradients(Distribution("exponential", 3.0), MachineGroup(machines, phases), count=128_000 // machines)
    one_s, ranks = 3.0 / (machines * phases), range(1, machines + 1)
    assert statistics.fmean(taken) == pytest.approx(phases * one_s * sum(1 / k for k in ranks), rel=0.015)
    variance = phases * one_s**2 * sum(1 / k**2 for k in ranks)
    assert statistics.variance(taken) == pytest.approx(variance, rel=0.1)


def test_machines_that_vary_more_wait_longer_and_the_longer_the_more_they_are() -> None:
    def waits(cv: float, machines: int) -> float:
        """The share of a group's time in which its machines wait for the slowest."""
        mean = statistics.fmean(gradients(Distribution("gamma", 1.0, cv), MachineGroup(machines), count=1000))
        return 1 - 1 / (machines * mean)

    by_cv = [waits(cv, 8) for cv in (0.0, 0.1, 0.3, 1.0)]
    by_machines = [waits(0.3, machines) for machines in (2, 4, 8, 16)]
    for growing in (by_cv, by_machines):
        assert growing == sorted(growing)
        assert growing[-1] > growing[0] + 0.2
    assert by_cv[0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("group", "seconds_"),
    [
        (MachineGroup(8, 4), 2.0 / 8),
        (MachineGroup(8, 4, bytes=1e6, bandwidth=1e8, latency_s=0.001), 2.0 / 8 + 4 * (0.001 + 0.01)),
        (MachineGroup(8, 4, latency_s=0.001), 2.0 / 8 + 4 * 0.001),
        (MachineGroup(8, 4, 3, 1e6, 1e8, 0.001), 2.0 / 8 + 4 * 3 * 0.011),
        (MachineGroup(8, 4, None, 1e6, 1e8, 0.001), 2.0 / 8 + 4 * 7 * 0.011),
        (MachineGroup(1, 4, None, 1e6, 1e8, 0.001), 2.0),
    ],
)
def test_equal_machines_take_their_share_and_what_they_send(group: MachineGroup, seconds_: float) -> None:
    assert gradients(2.0, group) == [pytest.approx(seconds_, rel=1e-12)]


def test_a_group_in_which_all_send_to_all_has_a_best_size() -> None:
    """g / K + phases (K - 1) c is least at K = sqrt(g / (phases c)); with one message a phase, more are faster."""
    sizes = range(1, 33)

    def speedups(messages: int | None, nbytes: float) -> list[float]:
        groups = [MachineGroup(machines, 2, messages, nbytes, 1e9) for machines in sizes]
        return [2.0 / gradients(2.0, group)[0] for group in groups]

    many = speedups(None, 1e9 / 64)  # c = 1/64 s
    assert max(many) == many[8 - 1] == pytest.approx(2.0 / (2.0 / 8 + 2 * 7 / 64))
    assert many[:8] == sorted(many[:8])
    assert many[7:] == sorted(many[7:], reverse=True)
    assert max(speedups(None, 2e9)) == 1.0  # so many bytes that a machine is faster by itself
    neighbours, free = speedups(1, 1e9 / 64), speedups(None, 0.0)
    assert neighbours[1:] == sorted(neighbours[1:])
    assert neighbours[-1] > max(many)
    assert free == pytest.approx([*sizes])


@pytest.mark.parametrize("group", [None, MachineGroup(1), MachineGroup(1, 6, None, 1e9, 1.0, 1.0)])
def test_a_worker_that_is_one_machine_draws_as_before_there_were_groups(group: MachineGroup | None) -> None:
    settings = ClockSettings(Distribution("gamma", 0.1, 0.3), stragglers={1: 2.0}, group=group)
    clock = SimulatedClock(settings, workers=2, seed=3)
    assert [[clock.gradient_s(worker) for _ in range(3)] for worker in (0, 1)] == [
        [0.07813566532549326, 0.05900098213724272, 0.12727193547027957],
        [0.16134996495065812, 0.19875843643559624, 0.2005002001205826],
    ]


def test_a_straggler_is_a_whole_group() -> None:
    group = MachineGroup(4, 2, bytes=1.0, bandwidth=8.0)
    clock = SimulatedClock(ClockSettings(2.0, stragglers={1: 1.5}, group=group), workers=2)
    assert [clock.gradient_s(worker) for worker in (0, 1)] == [0.75, 1.125]
