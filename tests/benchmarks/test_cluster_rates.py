"""The benchmark of machines joined at 1 Gbit/s, shortest; and its table."""

import pytest

from benchmarks.cluster_rates import Rate, cells, measured, planned, profile_of, row
from scalebook.training.engine.rules.clock_settings import Distribution
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Async
from scalebook.training.planner.play import play
from scalebook.training.pricing.links import NETWORKS
from tests.cluster.namespaces import why_not

BYTES = 2_678_824.0
LINK_S = BYTES / 117.5e6


@pytest.mark.thorough
def test_one_machine_is_as_fast_as_its_link() -> None:
    if why := why_not():
        pytest.skip(why)
    rate = measured(Settings(), 1, 1.0)
    assert rate.push_bytes == BYTES
    assert 2 < rate.updates_per_s < 1 / (2 * LINK_S)


def test_what_a_worker_alone_shows_is_what_the_planner_is_given() -> None:
    alone = Rate(1 / (2 * LINK_S + 0.005 + 0.001), BYTES, BYTES, 0.001, cpu_s=0.008)
    profile = profile_of(alone)
    assert profile.gradient_s == pytest.approx(0.005)
    assert (profile.server_s, profile.network.server_link) == (0.001, NETWORKS["1gbe"].server_link)
    assert profile.network.link.latency_s == pytest.approx(50e-6)


def test_machines_that_share_the_cores_wait_for_them() -> None:
    """Of 20 ms of its own a worker needs 12 of a core: as often as there are cores every 12 ms, over any link."""
    alone = Rate(1 / 0.0201, 0.0, 0.0, 0.0, cpu_s=0.012)
    profile = profile_of(alone)
    assert profile.gradient_s == pytest.approx(0.012)
    assert profile.network.link.latency_s == pytest.approx(0.00405 + 50e-6, abs=1e-4)
    assert profile.cores is not None
    per_s = play(profile, 8 * profile.cores, cores=profile.cores).updates_per_s
    assert per_s == pytest.approx(profile.cores / 0.012, rel=0.01)


def test_spread_is_the_gradient_s_or_with_overlap_the_shards() -> None:
    alone = Rate(1 / (2 * LINK_S + 0.005 + 0.001), BYTES, BYTES, 0.001, spread_s=0.0005, cpu_s=1.0)
    plain, hidden = profile_of(alone), profile_of(alone, overlap=True)
    assert isinstance(plain.gradient_s, Distribution)
    assert (plain.gradient_s.mean, plain.gradient_s.cv) == pytest.approx((0.005, 0.1))
    assert plain.server_s == 0.001
    assert hidden.gradient_s == pytest.approx(0.005)
    assert hidden.server_s == Distribution("gamma", 0.001, 0.5)


def test_the_table_has_the_planner_s_row_and_both_knees() -> None:
    """Two machines fill the link almost, so that the third brings less than half of the first."""
    alone = Rate(1 / (2 * LINK_S + 0.005), BYTES, BYTES, 0.0, cpu_s=0.01)
    full = alone._replace(updates_per_s=1 / LINK_S)
    rates = [alone, alone._replace(updates_per_s=2 * alone.updates_per_s), full]
    points = planned(rates, 1.0, Settings())
    found, planner, ratios, cores = row("fp32", rates, points, Async())
    assert found == "| fp32 | 2.68 + 2.68 | 19.8 | 39.5 | 43.9 | 2.2 |"
    assert planner.split(" | ")[2:4] == ["19.7", "39.4"]  # with 50 us of latency each way
    assert ratios.split(" | ")[2:4] == ["1.00", "1.00"]
    assert cores.split(" | ")[2:5] == ["0.20", "0.40", "0.44"]
    first, second = cells("fp32", rates, points, 1.0, Async())
    assert (first.strategy, first.place, first.what) == ("async", "network", "fp32, 2 machines, 1 Gbit/s")
    assert second.rates == pytest.approx(points[2].samples_per_s * LINK_S, abs=1e-3)
