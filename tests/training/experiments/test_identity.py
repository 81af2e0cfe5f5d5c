from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash


def test_order_and_seed_do_not_matter_and_values_do(description: Description) -> None:
    def found(config: Any) -> str:
        return config_hash(Experiment.read(config, description))

    one = {"model": {"a": 1, "b": [1, 2.0]}, "seed_everything": 1}
    same = {"seed_everything": 7, "model": {"b": [1, 2], "a": 1}}
    assert found(one) == found(same)
    assert len(found(one)) == 12
    assert found(one) != found({"model": {"a": 2, "b": [1, 2.0]}})
    assert found(one) != found({"model": {"a": "1", "b": [1, 2.0]}})


def test_the_hash_of_a_config_is_the_same_for_ever(description: Description) -> None:
    """Stored with every run: another hash would make all results stale."""
    assert (
        config_hash(Experiment.read({"model": "PixelCNN", "trainer": {"max_epochs": 3}}, description)) == "e32c879df143"
    )


def with_rule(rule: Any) -> dict[str, Any]:
    return {"trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"rule": rule}}, "devices": 2}}


@pytest.mark.parametrize(
    "spelled_out",
    [
        {"class_path": "Bounded"},
        {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {}},
        {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 4}},
        {"class_path": "Bounded", "init_args": {"bound": 4.0}},
        "Bounded",
    ],
)
def test_a_bare_name_is_its_class_with_the_defaults(spelled_out: Any, description: Description) -> None:
    bare = config_hash(Experiment.read(with_rule("bounded"), description))
    assert config_hash(Experiment.read(with_rule(spelled_out), description)) == bare


def test_another_setting_is_another_experiment(description: Description) -> None:
    found = {
        config_hash(Experiment.read(with_rule(rule), description))
        for rule in (
            "bounded",
            "async",
            {"class_path": "Bounded", "init_args": {"bound": 3}},
            {"class_path": "Bounded", "init_args": {"bound": True}},
            {"class_path": "Bounded", "init_args": {"bond": 4}},
        )
    }
    assert len(found) == 5
    three = {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 3}}
    assert config_hash(Experiment.read(with_rule(three), description)) in found
