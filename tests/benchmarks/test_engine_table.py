import math

from benchmarks.engine_table import Goal, ratios, table
from benchmarks.engine_task import Measured, Share, together

RESULTS = {
    "one": [Measured(100, 100, 4.0), Measured(50, 50, 8.0), Measured(200, 200, 2.0)],
    "two": [Measured(190, 190, 4.4, 1.0), Measured(100, 100, 8.0, 1.5), Measured(300, 300, 2.6, 0.5)],
    "lockless": [Measured(180, 180, 4.4, math.nan)] * 3,
}


def test_a_ratio_is_taken_within_a_repeat() -> None:
    (rate, cpu) = ratios(RESULTS, [Goal("two", "one", "updates_per_s", ">= 1.8"), Goal("two", "one", "cpu_ms")])
    assert (rate.median, rate.low, rate.high) == (1.9, 1.5, 2.0)  # not 190 / 100 of the medians
    assert (round(cpu.median, 9), cpu.low, cpu.high) == (1.1, 1.0, 1.3)


def test_a_ratio_with_a_system_that_was_not_measured_is_left_out() -> None:
    assert ratios(RESULTS, [Goal("two", "three", "updates_per_s")]) == []


def test_the_table_shows_medians_and_a_dash_for_what_is_unknown() -> None:
    lines = table(RESULTS, [Goal("two", "one", "updates_per_s", ">= 1.8")]).splitlines()
    assert "| two | 190 | 190 | 4.40 | 1.00 |" in lines
    assert "| lockless | 180 | 180 | 4.40 | - |" in lines
    assert lines[-1] == "| two / one | updates/s | 1.90 | 1.50 – 2.00 | >= 1.8 |"


def test_workers_side_by_side_add_up_over_the_longest_time() -> None:
    found = together([Share(100, 2.0, 1.0), Share(60, 1.6, 0.6)], updates_per_gradient=0.5)
    assert found == Measured(updates_per_s=40, gradients_per_s=80, cpu_ms=10.0)
