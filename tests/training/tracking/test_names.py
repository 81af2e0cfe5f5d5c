import pytest

from scalebook.training.tracking import names


@pytest.mark.parametrize(
    ("metrics", "main"),
    [(["train/loss", "val/loss", "val/accuracy"], "val/accuracy"), (["val/f1", "train/loss"], "val/f1"),
     (["train/loss"], "train/loss"), (["perf/wait_share"], None)],
)  # fmt: skip
def test_the_metric_by_which_runs_are_judged(metrics: list[str], main: str | None) -> None:
    assert names.main_metric(metrics) == main


def test_what_is_said_of_seconds_depends_on_whose_they_are() -> None:
    assert names.time_words([False, False]) == names.time_words([]) == ""
    assert names.time_words([True, True]).startswith("Virtual workers: one process plays all of them.")
    assert names.time_words([True, False]).startswith("Virtual beside measured: of those with virtual workers")
