import pytest

from scalebook.training.tracking import names


@pytest.mark.parametrize(
    ("metrics", "main"),
    [(["train/loss", "val/loss", "val/accuracy"], "val/accuracy"), (["val/f1", "train/loss"], "val/f1"),
     (["train/loss"], "train/loss"), (["perf/wait_share"], None)],
)  # fmt: skip
def test_the_metric_by_which_runs_are_judged(metrics: list[str], main: str | None) -> None:
    assert names.main_metric(metrics) == main
