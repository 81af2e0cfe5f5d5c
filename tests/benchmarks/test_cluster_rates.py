"""The benchmark of machines joined at 1 Gbit/s, shortest; and its table."""

import pytest

from benchmarks.cluster_rates import Rate, measured, profile_of, row
from scalebook.training.planning.links import NETWORKS
from scalebook.training.ps.policy.settings import Settings
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
    alone = Rate(1 / (2 * LINK_S + 0.005 + 0.001), BYTES, BYTES, 0.001)
    profile = profile_of(alone)
    assert profile.gradient_s == pytest.approx(0.005)
    assert (profile.server_s, profile.network) == (0.001, NETWORKS["1gbe"])


def test_the_table_has_the_planner_s_row_and_both_knees() -> None:
    """Two machines fill the link almost, so that the third brings less than half of the first."""
    alone = Rate(1 / (2 * LINK_S + 0.005), BYTES, BYTES, 0.0)
    full = alone._replace(updates_per_s=1 / LINK_S)
    found, planner, ratios = row("fp32", [alone, alone._replace(updates_per_s=2 * alone.updates_per_s), full, full])
    assert found == "| fp32 | 2.68 + 2.68 | 19.8 | 39.5 | 43.9 | 43.9 | 2.2 |"
    assert planner.split(" | ")[2:4] == ["19.7", "39.4"]  # with 50 us of latency each way
    assert ratios.split(" | ")[2:5] == ["1.00", "1.00", "1.00"]
