import math

from benchmarks.digits_task import BATCH
from benchmarks.stragglers import Part, mean_interval, trained


def test_the_interval_is_students_for_three_seeds() -> None:
    # standard deviation 1, t(0.975, 2) = 4.303, sqrt(3): 2.484
    assert mean_interval([1.0, 2.0, 3.0], 2) == "2.00 ± 2.48"
    assert mean_interval([5.0], 1) == "5.0"


def test_a_missed_target_is_not_averaged_away() -> None:
    assert mean_interval([1.0, math.inf, 3.0]) == "reached in 2 of 3"


def test_a_training_is_timed_from_the_first_to_the_last_and_counts_what_was_applied() -> None:
    parts = [Part(10.0, 14.0, 30, 0, 29, 12.5, 0.97), Part(10.5, 15.0, 10, 10, 30, math.inf, math.nan)]
    found = trained(parts, staleness=0.0)
    assert found.updates_per_s == 6.0
    assert found.samples_per_s == 8 * BATCH
    assert found.to_target_s == 2.5
    assert (found.dropped, found.final_accuracy) == (0.2, 0.97)
