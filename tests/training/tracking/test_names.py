import pytest

from scalebook.training.tracking import names


@pytest.mark.parametrize(
    ("metrics", "main"),
    [(["train/loss", "val/loss", "val/accuracy"], "val/accuracy"), (["val/f1", "train/loss"], "val/f1"),
     (["train/loss"], "train/loss"), (["perf/wait_share"], None)],
)  # fmt: skip
def test_the_metric_by_which_runs_are_judged(metrics: list[str], main: str | None) -> None:
    assert names.main_metric(metrics) == main


def test_an_own_models_metrics_are_found() -> None:
    own = ["train/loss", "train_loss", "best/val_mae", "val_mae", "score", "best/score"]
    assert names.validation_metrics(own) == ["score", "val_mae"]
    assert names.main_metric([*own, "best/val_loss", "val_loss"]) == "val_loss"
    assert names.own_training_loss(own) == "train_loss"


def test_what_is_said_of_seconds_depends_on_whose_they_are() -> None:
    assert names.time_words([False, False]) == names.time_words([]) == ""
    assert names.time_words([True, True]).startswith("Virtual workers: one process simulates all of them.")
    assert names.time_words([True, False]).startswith("Virtual and measured runs together: for virtual workers")
