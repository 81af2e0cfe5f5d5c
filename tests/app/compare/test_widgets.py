from scalebook.app.compare.widgets import interval_text, rate, resolution, to_target, winner
from scalebook.training.notebook.cells import Axis
from scalebook.training.notebook.comparison import Comparison
from scalebook.training.notebook.result_row import AXES, ExperimentRow
from scalebook.training.tracking.directions import direction
from scalebook.training.tracking.estimates import Estimate, Reached


def compared(*best: Estimate | None, metric: str = "val/loss") -> Comparison:
    rows = [ExperimentRow(name, "finished", best=one) for name, one in zip("abc", best, strict=False)]
    return Comparison("c", metric, None, ["updates"], rows, [], [], direction(metric))


def test_the_winner_depends_on_what_the_metric_means() -> None:
    low, high = Estimate(1.0, 0.1, 3), Estimate(2.0, 0.1, 3)
    assert winner(compared(low, high)) is not None
    assert getattr(winner(compared(low, high)), "experiment", "") == "a"
    assert getattr(winner(compared(low, high, metric="val/accuracy")), "experiment", "") == "b"
    assert winner(compared(low, None)) is None


def test_what_the_seeds_cannot_tell_apart_is_said_aloud() -> None:
    near = compared(Estimate(1.0, 0.3, 3), Estimate(1.2, 0.1, 3), Estimate(9.0, 0.1, 3))
    assert resolution(near) == "With these seeds, a and b cannot be distinguished, because the 95 % intervals overlap."
    assert resolution(compared(Estimate(1.0, 0.05, 3), Estimate(1.2, 0.05, 3))) == ""
    assert resolution(compared(Estimate(1.0, None, 1), Estimate(1.2, None, 1))).startswith("One seed")
    assert resolution(compared(Estimate(1.0, None, 1))) == ""


def test_a_missed_target_is_never_averaged() -> None:
    reached: dict[Axis, Reached] = {
        "updates": Reached(Estimate(1234.0, 10.0, 3), 3, 3),
        "samples": Reached(None, 2, 3),
        "seconds": Reached(None, 0, 3),
    }
    assert [to_target(reached, axis) for axis in AXES] == ["1,234", "2 of 3 only", "missed", ""]
    assert to_target({}, "updates") == ""


def test_estimates_show_their_interval() -> None:
    assert interval_text(Estimate(2.1034, 0.0123, 3)) == "2.103 ± 0.012"
    assert interval_text(Estimate(65.2, 1.0, 3), 3) == "65.2"
    assert interval_text(None) == ""


def test_a_rate_says_whether_its_seconds_are_virtual() -> None:
    value = Estimate(65.04, None, 1)
    assert rate(ExperimentRow("a", "finished"), value) == "65.0"
    assert rate(ExperimentRow("a", "finished", is_simulated=True), value) == "65.0 virtual"
    assert rate(ExperimentRow("a", "finished", is_simulated=True), None) == ""
