from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.utils import validation

from scalebook.training.tracking import names


@pytest.mark.parametrize(
    ("metrics", "main"),
    [(["train/loss", "val/loss", "val/accuracy"], "val/accuracy"), (["val/f1", "train/loss"], "val/f1"),
     (["train/loss"], "train/loss"), (["perf/wait_share"], None),
     (["val/accuracy", "val/bits_per_dim", "val/loss"], "val/bits_per_dim"),
     (["val/zeta", "best/own_loss", "own_loss"], "own_loss")],
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
    assert names.time_words([True, False]).startswith("This includes virtual and measured runs. For virtual workers")
    words = [names.axis_words(names.SECONDS, virtual) for virtual in ([], [False], [True, False], [True, True])]
    assert words == ["seconds", "seconds", "seconds, virtual or measured", "virtual seconds"]
    assert names.axis_words(names.UPDATES, [True]) == "updates"


@pytest.mark.parametrize(
    "metric",
    ["val loss", "métrique/é", "val/loss", "a:b", "AUC (macro)", "acc@1", "val\nloss", "a//b", "../a", "/a", "a/",
     ".", "a/./b", "", "x" * 244, "x" * 245, "损失", "loss%", "a,b", "..a"],
)  # fmt: skip
def test_what_can_be_recorded_is_what_mlflow_takes(metric: str) -> None:
    validate: Any = validation._validate_metric  # has no types
    try:
        for one in (metric, names.best(metric), names.final(metric)):
            validate(one, 1.0, 0, 0)
    except MlflowException:
        assert not names.recordable(metric)
    else:
        assert names.recordable(metric)


def test_a_run_of_an_earlier_version_has_todays_names_and_keeps_what_it_recorded() -> None:
    earlier = {"perf/peak_memory_mb": 512.0, "perf/updates_per_second": 9.0, "perf/samples_per_second": 100.0}
    found = names.completed({**earlier, "updates": 10.0, "samples": 100.0})
    assert (found[names.PEAK_MEMORY_MB], found[names.UPDATES_PER_SECOND]) == (512.0, 9.0)
    assert "perf/peak_memory_mb" not in found


def test_a_percentile_that_was_0_throughout_is_0_and_not_missing() -> None:
    assert names.completed({names.STALENESS_MEAN: 0.01})[names.STALENESS_P95] == 0
    assert names.completed({names.STALENESS_MEAN: 2.5, names.STALENESS_P95: 4.0})[names.STALENESS_P95] == 4
    assert names.STALENESS_P95 not in names.completed({"val/loss": 1.0})
