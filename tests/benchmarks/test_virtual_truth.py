"""Timing alone says what the run with gradients says, and the ranges that every plan is told with."""

import pytest

from benchmarks.virtual_truth import RULES, Cost, planned, ranges, virtual
from scalebook.training.planning.answer import Range

COST = Cost(gradient_s=0.022, cv=0.02, push_s=0.0005)


@pytest.mark.parametrize("rule", ["bounded 2", "sync, 1 backup"])
def test_timing_alone_says_what_the_run_with_gradients_says(rule: str) -> None:
    played, computed = planned(RULES[rule](), 4, COST), virtual(RULES[rule](), 4, COST, 1.0, seed=0)
    assert played.updates_per_s == pytest.approx(computed.updates_per_s, rel=0.07)
    assert played.staleness == pytest.approx(computed.staleness, rel=0.07)


def test_a_range_is_over_all_cells() -> None:
    rows = [
        {"planned_updates_ratio": rate, "planned_staleness_ratio": stale, "staleness": known}
        for rate, stale, known in ((0.97, 0.8, 1.0), (1.09, 1.0, 0.0), (1.0, 1.05, 2.0))
    ]
    found = ranges(rows, "a command")
    assert (found.updates_per_s, found.staleness) == (Range(0.97, 1.09), Range(0.8, 1.05))
    assert (found.cells, found.command) == (3, "a command")
