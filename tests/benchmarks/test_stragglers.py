import math

from benchmarks.digits_task import BATCH
from benchmarks.stragglers import DDP, Part, Trained, mean_interval, table, trained


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


def test_seconds_are_compared_with_ddp_seed_by_seed() -> None:
    def runs(*seconds: float) -> list[Trained]:
        return [Trained(10, 320, one, 0.96, 0.0, 0.0) for one in seconds]

    lines = table({"async": runs(1.0, 2.0, math.inf), DDP: runs(2.0, 4.0, 3.0)}).splitlines()
    assert lines[2] == "| async | 10 ± 0 | 320 ± 0 | reached in 2 of 3 | 0.50 ± 0.00 | 0% | 0.00 | 96.0% |"
    assert "| 1.00 ± 0.00 |" in lines[3]
