from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.paths import fields_by_path, place, plain, put
from scalebook.training.experiments.validation import validate
from tests.training.experiments.searches import CONFIG

SERVER = {"class_path": "AsyncPS", "init_args": {"rule": "bounded"}}
BASE: dict[str, Any] = {**CONFIG, "trainer": {"strategy": SERVER}, "lr_scaling": {"rule": "linear"}}


def test_every_field_that_is_listed_has_a_place(description: Description) -> None:
    listed = dict(fields_by_path(Experiment.read(BASE, description)))
    for path, field in listed.items():
        assert place(path, Experiment.read(BASE, description)).field == field
        assert "init_args" not in path
    known = {
        "model.hidden",
        "data.batch_size",
        "optimizer.momentum",
        "trainer.strategy.rule.bound",
        "trainer.max_epochs",
    }
    assert known | {"threads", "lr_scaling.per"} <= listed.keys()


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("model.init_args.hidden", 32, {"model": {"class_path": "MLPClassifier", "init_args": {"hidden": 32}}}),
        ("data.limit", 10, {"data": {"class_path": "Digits", "init_args": {"batch_size": 16, "limit": 10}}}),
        ("trainer.max_epochs", 9, {"trainer": {"strategy": SERVER, "max_epochs": 9}}),
        ("threads", 2, {"threads": 2}),
        ("lr_scaling.per", 64, {"lr_scaling": {"rule": "linear", "per": 64}}),
        ("optimizer", "Adam", {"optimizer": {"class_path": "Adam", "init_args": {"lr": 0.1}}}),
        (
            "trainer.strategy.rule.bound",
            7,
            {
                "trainer": {
                    "strategy": {
                        "class_path": "AsyncPS",
                        "init_args": {
                            "rule": {
                                "class_path": "scalebook.training.engine.rules.Bounded",
                                "init_args": {"bound": 7},
                            }
                        },
                    }
                }
            },
        ),
    ],
)
def test_one_value_is_put_in_place(path: str, value: Any, expected: dict[str, Any], description: Description) -> None:
    done = put(Experiment.read(BASE, description), place(path, Experiment.read(BASE, description)), value).written
    assert done == {**BASE, **expected}
    assert validate(Experiment.read(done, description)) == []


def test_an_optimizer_that_is_not_written_is_the_default_one(description: Description) -> None:
    without = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    done = put(
        Experiment.read(without, description), place("optimizer.eps", Experiment.read(without, description)), 0.1
    ).written
    default = description.default_optimizer
    assert done["optimizer"] == {**default, "init_args": {**default["init_args"], "eps": 0.1}}


def test_a_class_is_known_by_its_place(description: Description) -> None:
    assert place("model", Experiment.read(BASE, description)).group == "models"
    assert place("trainer.strategy", Experiment.read(BASE, description)).group == "strategies"


def test_a_field_that_is_not_there(description: Description) -> None:
    with pytest.raises(
        ConfigError,
        match=r"contains bond, which is not a field of Bounded\. Did you mean `trainer.strategy.rule.bound`",
    ):
        place("trainer.strategy.rule.bond", Experiment.read(BASE, description))


def test_init_args_may_be_left_out() -> None:
    assert plain("trainer.strategy.init_args.rule.init_args.bound") == "trainer.strategy.rule.bound"


CLOCK = {"gradient_s": {"kind": "gamma", "mean": 0.1, "cv": 0.5}, "link": {"latency_s": 0.001, "bandwidth": 1e6}}
SIMULATED = {"class_path": "AsyncPS", "init_args": {"workers": 4, "host": "virtual", "clock": CLOCK}}


def test_a_number_of_the_clock_has_a_path(description: Description) -> None:
    base = {**CONFIG, "trainer": {"strategy": SIMULATED}}
    path = "trainer.strategy.clock.link.bandwidth"
    assert {path, "trainer.strategy.clock.gradient_s.mean"} <= dict(
        fields_by_path(Experiment.read(base, description))
    ).keys()
    done = put(Experiment.read(base, description), place(path, Experiment.read(base, description)), 5e6).written
    clock = {**CLOCK, "link": {"latency_s": 0.001, "bandwidth": 5e6}}
    assert done["trainer"]["strategy"] == {
        "class_path": "AsyncPS",
        "init_args": {"workers": 4, "host": "virtual", "clock": clock},
    }
    assert type(done["trainer"]["strategy"]["init_args"]["clock"]["link"]) is dict
    assert base["trainer"]["strategy"]["init_args"]["clock"]["link"]["bandwidth"] == 1e6
    assert validate(Experiment.read(done, description)) == []


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("trainer.strategy.clock.link.bandwith", r"Did you mean `trainer\.strategy\.clock\.link\.bandwidth`"),
        ("trainer.strategy.clock.gradient_s.kind", r"Did you mean|Known: trainer\.strategy\.clock"),
        ("trainer.strategy.clock.link", r"Did you mean|Known: trainer\.strategy\.clock"),
    ],
)
def test_what_is_no_number_of_the_clock(path: str, fix: str, description: Description) -> None:
    base = {**CONFIG, "trainer": {"strategy": SIMULATED}}
    with pytest.raises(ConfigError, match=f"is an entry of clock that the config does not have.*({fix})"):
        place(path, Experiment.read(base, description))


def test_a_config_without_a_clock_has_no_number_of_it(description: Description) -> None:
    with pytest.raises(ConfigError, match=r"does not have\. Use trainer\.strategy\.clock\.$"):
        place("trainer.strategy.clock.gradient_s", Experiment.read(BASE, description))
