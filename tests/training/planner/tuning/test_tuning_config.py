import re
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import require
from scalebook.training.planner.tuning.tuning_config import number, requested, shorten_training, whole_number
from tests.training.experiments.searches import NO_CLASSES

CALLBACK = {"class_path": "scalebook.training.planner.tuning.rate_range.RateRange", "init_args": {"updates": 50}}


def test_a_test_trains_few_updates_and_nothing_else(description: Description) -> None:
    given: dict[str, Any] = {
        "model": {"class_path": "MLPClassifier"},
        "data": {"class_path": "Digits"},
        "lr_scheduler": {"class_path": "StepLR", "init_args": {"step_size": 5}},
        "lr_scaling": {"rule": "linear", "per": 256},
        "noise_scale": True,
        "trainer": {"max_epochs": 3, "max_time": "00:00:10", "min_steps": 500, "gradient_clip_val": 1.0},
    }
    before = repr(given)
    done = shorten_training(Experiment.read(given, NO_CLASSES), 50, CALLBACK).written
    require(Experiment.read(done, description))
    assert repr(given) == before
    assert not done.keys() & {"lr_scheduler", "lr_scaling", "noise_scale"}
    assert not done["trainer"].keys() & {"max_time", "min_steps"}
    assert done["trainer"]["callbacks"] == [CALLBACK]
    known = {key: done["trainer"][key] for key in ("max_steps", "max_epochs", "limit_val_batches", "gradient_clip_val")}
    assert known == {"max_steps": 50, "max_epochs": -1, "limit_val_batches": 0, "gradient_clip_val": 1.0}


def test_the_users_callbacks_stay() -> None:
    theirs = {"class_path": "lightning.pytorch.callbacks.StochasticWeightAveraging", "init_args": {"swa_lrs": 0.1}}
    assert shorten_training(Experiment.read({"trainer": {"callbacks": theirs}}, NO_CLASSES), 5, CALLBACK).written[
        "trainer"
    ]["callbacks"] == [
        CALLBACK,
        theirs,
    ]


def test_a_callback_that_writes_checkpoints_is_left_out() -> None:
    theirs = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"monitor": "val/loss"}}
    assert shorten_training(Experiment.read({"trainer": {"callbacks": [theirs]}}, NO_CLASSES), 5, CALLBACK).written[
        "trainer"
    ]["callbacks"] == [CALLBACK]


def test_options_and_config_of_a_command_line(description: Description) -> None:
    words = ["--from", "1e-4", "--model", "MLPClassifier", "--data", "Digits", "--data.batch_size", "16"]
    found = requested(words, description, {"--from": True, "--updates": True})
    assert found is not None
    assert number(found.options, "--from", 1.0, 0.0) == 1e-4
    assert whole_number(found.options, "--updates", 200) == 200
    assert found.config["data"]["init_args"]["batch_size"] == 16
    assert requested(["--help"], description, {"--help": False}) is None
    with pytest.raises(ConfigError, match="data: is missing"):
        requested(["--model", "MLPClassifier"], description, {})
    several = ["--model", "MLPClassifier", "--data", "Digits", "--trainer.num_nodes", "2"]
    with pytest.raises(ConfigError, match="jobs of this folder run on one machine"):
        requested(several, description, {})
    assert requested(several, description, {}, queued=False) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [("x", "--updates: is 'x', not a number"), ("1.5", "--updates: is 1.5. Use a whole"), ("0", "Use at least 1.")],
)
def test_wrong_numbers_are_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        whole_number({"--updates": text}, "--updates", None)
