"""Timing alone says what the run with gradients says; what is said of cells, and the ranges of plans."""

from typing import Any

import pytest

from benchmarks.virtual_truth import RULES, cells, failures, linear, planned, verdicts, virtual
from benchmarks.worker_cost import Cost, calibrate
from scalebook.training.engine.rules.update_rules import Softsync
from scalebook.training.planner.reliability import ComparedPlan

COST = Cost(gradient_s=0.022, cv=0.02, server_s=0.0005)


@pytest.mark.parametrize("rule", ["bounded 2", "sync, 1 backup"])
def test_timing_alone_says_what_the_run_with_gradients_says(rule: str) -> None:
    played, computed = planned(RULES[rule](), 4, COST, 1.0), virtual(RULES[rule](), 4, "inline", COST, 1.0, seed=0)
    assert played.updates_per_s == pytest.approx(computed.updates_per_s, rel=0.07)
    assert played.staleness == pytest.approx(computed.staleness, rel=0.07)


def test_being_woken_and_the_way_to_a_server_take_their_time() -> None:
    def rate(rule: str, cost: Cost) -> float:
        return virtual(RULES[rule](), 2, "process", cost, 0.5, seed=0).updates_per_s

    constant = Cost(0.008, 0.0, 0.0005)
    assert rate("sync", constant) == pytest.approx(
        1 / (0.008 + 2 * 0.0005), rel=0.03
    )  # two pushes, one after the other
    assert rate("sync", constant._replace(way_s=0.001)) == pytest.approx(1 / (0.008 + 0.002), rel=0.03)
    # whose push comes first has waited for the other's; both begin their next gradient at the same moment
    assert rate("sync", constant._replace(woken_s=0.001)) == pytest.approx(1 / (0.008 + 0.0005 + 0.001), rel=0.06)
    assert rate("async", constant._replace(woken_s=0.001)) == rate("async", constant)


def test_a_worker_is_measured_beside_processes_that_compute() -> None:
    cost = calibrate(Softsync(4), "inline", 0.0, 1, 0.3)
    assert 1e-5 < cost.server_s < cost.gradient_s < 1
    assert (cost.way_s, cost.woken_s) == (0.0, 0.0)


def cell(sleeps: bool, planned_updates: float, planned_staleness: float, staleness: float) -> dict[str, Any]:
    return {
        "rule": "async", "workers": 16 if sleeps else 2, "host": "inline", "sleeps": sleeps, "updates_per_s": 700.0,
        "updates_ratio": 1.2, "staleness": staleness, "staleness_ratio": 0.95, "distance": 0.2,
        "planned_updates_ratio": planned_updates, "planned_staleness_ratio": planned_staleness,
    }  # fmt: skip


def test_cells_are_of_a_kind_and_have_staleness_where_there_is_any() -> None:
    rows = [cell(True, 0.97, 0.8, 1.0), cell(True, 1.09, 1.0, 0.0), {**cell(False, 1.3, 1, 1), "rule": "sync"}]
    assert cells(rows) == [
        ComparedPlan("async", "machine", "async, 16 workers, inline", 0.97, 0.8),
        ComparedPlan("async", "machine", "async, 16 workers, inline", 1.09),
        ComparedPlan("sync", "short", "sync, 2 workers, inline", 1.3, 1),
    ]


def test_a_cell_that_fails_is_named_with_what_is_wrong() -> None:
    failed = cell(True, 1, 1, 14.0)
    assert failures(failed) == ["updates/s 1.20 of the measured", "histograms 0.20 apart"]
    said = verdicts([failed], {16: linear(16, COST)})
    assert said[0].startswith("workers that sleep: 0 of 1 cells agree; updates/s 1.20 to 1.20")
    assert "  async, 16 workers, inline: updates/s 1.20 of the measured; histograms 0.20 apart" in said
    assert linear(16, COST) == pytest.approx(15 / 0.0225 + 1 / 0.0425)
    assert f"async workers, inline: {700 / linear(16, COST):.3f} of linear" in said[-1]
