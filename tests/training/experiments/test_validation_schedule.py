from inspect import signature
from typing import Any, get_args

import pytest
from lightning.pytorch import Trainer

from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import NULL_IS_SAID, Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.experiments.validation_schedule import validation_words

VIRTUAL: dict[str, Any] = {
    "class_path": "AsyncPS",
    "init_args": {"workers": 100, "host": "virtual", "clock": {"gradient_s": 0.1}},
}


def config(strategy: Any = "auto", limit: int | None = 1200, **trainer: Any) -> dict[str, Any]:
    data = {"class_path": "Digits", "init_args": {"batch_size": 4, "limit": limit}}
    return {"model": "MLPClassifier", "data": data, "trainer": {"strategy": strategy, **trainer}}


def found(given: dict[str, Any], description: Description) -> list[str]:
    return [str(problem) for problem in validate(Experiment.read(given, description), typed=True)]


def test_one_null_of_the_trainer_says_something() -> None:
    """Of Lightning's own arguments: those that may be None and are not by default."""
    known = signature(Trainer.__init__).parameters.values()
    nullable = [one for one in known if type(None) in get_args(one.annotation)]
    assert [one.name for one in nullable if one.default is not None] == [*NULL_IS_SAID]


def test_a_null_arrives_in_the_trainer(description: Description) -> None:
    given = config(check_val_every_n_epoch=None, val_check_interval=100, max_time=None, gradient_clip_val=None)
    assert found(given, description) == []
    done = Experiment(given, description).to_run()
    assert Experiment(done, description).to_run() == done
    assert done["trainer"]["check_val_every_n_epoch"] is None
    assert not {"max_time", "gradient_clip_val"} & done["trainer"].keys()
    cli = TrainingCLI("fit", done, None, run=False)
    asked = cli.config["fit"]["trainer"]
    assert (asked["check_val_every_n_epoch"], asked["val_check_interval"]) == (None, 100)
    assert "check_val_every_n_epoch" not in Experiment(config(), description).to_run()["trainer"]


@pytest.mark.parametrize("interval", [None, 0.25, 1.0, 100.0])
def test_across_epochs_a_whole_number_is_needed(interval: float | None, description: Description) -> None:
    more: dict[str, Any] = {} if interval is None else {"val_check_interval": interval}
    (problem,) = found(config(check_val_every_n_epoch=None, **more), description)
    said = "is missing" if interval is None else f"is {interval}, not a whole number"
    assert problem == (
        f"trainer.val_check_interval: {said}, but with check_val_every_n_epoch: null, batches are counted across "
        "epochs. Use a number of batches of each worker, such as 100, or remove check_val_every_n_epoch."
    )


@pytest.mark.parametrize("interval", [0, -3, 1.5, -0.5, True])
def test_what_is_neither_a_part_nor_a_number_is_refused(interval: Any, description: Description) -> None:
    (problem,) = found(config(val_check_interval=interval), description)
    assert problem.startswith(
        f"trainer.val_check_interval: is {interval}, which is neither a fraction of an epoch nor a number"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (config(val_check_interval=301), "is 301, but an epoch has at most 300 batches. Use fewer, or a frac"),
        (config("ddp", devices=2, val_check_interval=151), "each of the 2 workers has at most 150 batches in an epoch"),
        (
            config(VIRTUAL, val_check_interval=4),
            "each of the 100 workers has at most 3 batches in an epoch. This setting",
        ),
        (config(VIRTUAL, limit_train_batches=1, val_check_interval=2), "workers has at most 1 batch in an epoch"),
        (config(limit=None, val_check_interval=451), "an epoch has at most 450 batches"),
    ],
)
def test_more_batches_than_a_worker_has_are_refused(given: Any, says: str, description: Description) -> None:
    (problem,) = found(given, description)
    assert problem.startswith("trainer.val_check_interval: is ")
    assert says in problem
    assert problem.endswith("To count across epochs, set check_val_every_n_epoch: null.")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ""),
        ({"val_check_interval": 0.5}, ""),
        ({"val_check_interval": "00:00:05:00"}, ""),
        ({"val_check_interval": 4}, ""),  # refused
        (
            {"val_check_interval": 3},
            "Validates after every 3 batches of each worker (300 over all 100 workers).",
        ),
        (
            {"val_check_interval": 100, "check_val_every_n_epoch": None},
            "Validates after every 100 batches of each worker (10,000 over all 100 workers), across epochs.",
        ),
        ({"val_check_interval": 4, "limit_val_batches": 0}, ""),
    ],
)
def test_what_an_interval_means_is_said(more: dict[str, Any], expected: str, description: Description) -> None:
    assert validation_words(Experiment.read(config(VIRTUAL, **more), description)) == expected


def test_of_one_worker_no_others_are_spoken_of(description: Description) -> None:
    assert (
        validation_words(Experiment.read(config(val_check_interval=1), description)) == "Validates after every batch."
    )
