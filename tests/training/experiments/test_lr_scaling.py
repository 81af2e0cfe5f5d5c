import math
from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.lr_scaling import RateScaling, read_scaling
from scalebook.training.experiments.validation import validate


def config(scaling: Any, strategy: Any = "auto", devices: int = 1, batch: int = 512, **trainer: Any) -> dict[str, Any]:
    return {
        "model": "MLPClassifier",
        "data": {"class_path": "Digits", "init_args": {"batch_size": batch}},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
        "trainer": {"strategy": strategy, "devices": devices, **trainer},
        "lr_scaling": scaling,
    }


def parameter_server(rule: Any, **more: Any) -> dict[str, Any]:
    return {"class_path": "AsyncPS", "init_args": {"rule": rule, **more}}


def test_factors_of_the_three_rules() -> None:
    assert RateScaling("linear", 256).factor(1024) == 4.0
    assert RateScaling("sqrt", 256).factor(1024) == 2.0
    assert RateScaling("none", 256).factor(1024) == 1.0
    assert RateScaling("linear", 100).factor(50) == 0.5


def test_the_warm_up_rises_by_equal_amounts_and_does_nothing_to_a_smaller_rate() -> None:
    rising = RateScaling("linear", 256, warmup_epochs=2.0)
    assert [rising.warmed(1024, epochs) for epochs in (0.0, 0.5, 1.0, 2.0, 9.0)] == [1.0, 1.75, 2.5, 4.0, 4.0]
    assert [rising.warmed(64, epochs) for epochs in (0.0, 1.0, 2.0)] == [0.25, 0.25, 0.25]
    assert RateScaling("linear", 256).warmed(1024, 0.0) == 4.0


@pytest.mark.parametrize(
    ("strategy", "devices", "trainer", "expected"),
    [
        ("auto", 1, {}, 0.2),
        ("ddp", 2, {}, 0.4),
        ("ddp", 2, {"accumulate_grad_batches": 4}, 1.6),
        (parameter_server("async"), 4, {}, 0.2),
        (parameter_server("bounded"), 4, {}, 0.2),
        (parameter_server("sync"), 4, {}, 0.8),
        (parameter_server({"class_path": "Sync", "init_args": {"backup_workers": 1}}), 4, {}, 0.6),
        (parameter_server({"class_path": "Softsync", "init_args": {"average": 3}}), 4, {}, 0.6),
        (parameter_server("async", local={"class_path": "Downpour", "init_args": {"n_push": 5}}), 4, {}, 0.2),
    ],
)
def test_the_rate_follows_the_samples_whose_mean_it_multiplies(
    strategy: Any, devices: int, trainer: dict[str, Any], expected: float, description: Description
) -> None:
    """Of five gradients summed into one push each is a step of its own: the sum is five times their mean already."""
    load = Experiment.read(config({"rule": "linear"}, strategy, devices, **trainer), description)
    assert load.rate.requested == 0.1
    assert load.rate.scaled == pytest.approx(expected, rel=1e-12)


def test_the_square_root_and_what_is_not_known(description: Description) -> None:
    found = Experiment.read(config({"rule": "sqrt", "per": 128}), description)
    assert found.rate.scaled == pytest.approx(0.1 * math.sqrt(4), rel=1e-12)
    assert Experiment.read(config({"rule": "none"}), description).rate.scaled == 0.1
    assert Experiment.read(config(None), description).rate.scaled is None
    assert Experiment.read({**config({"rule": "linear"}), "data": "Nope"}, description).rate.scaled is None


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        ("linear", "lr_scaling: is 'linear', not a mapping. Set lr_scaling: {rule: linear, per: 256"),
        ({"rul": "linear"}, "lr_scaling.rul: is not an argument. Did you mean `rule`?"),
        ({"rule": "linar"}, "lr_scaling.rule: 'linar' is not one of linear, sqrt, none. Did you mean `linear`?"),
        ({"per": 0}, "lr_scaling.per: 0 is out of bounds"),
        ({"per": 2.5}, "lr_scaling.per: 2.5 is not a whole number"),
        ({"warmup_epochs": -1}, "lr_scaling.warmup_epochs: -1 is out of bounds"),
        ({"warmup_epochs": "two"}, "lr_scaling.warmup_epochs: 'two' is not a number"),
        ({"warmup_epochs": math.inf}, "lr_scaling.warmup_epochs: is infinite. Use a number"),
        ({"per": None}, "lr_scaling.per: is empty. Use a whole number"),
    ],
)
def test_mistakes_are_named(scaling: Any, said: str, description: Description) -> None:
    (problem,) = validate(Experiment.read(config(scaling), description))
    assert str(problem).startswith(said)
    assert problem.severity == "error"
    assert read_scaling(config(scaling).get("lr_scaling")) is None or "rul" in scaling


def test_a_scaling_needs_a_batch_size(description: Description) -> None:
    stranger = description.data[0].__class__("mine.Data", "Data", source="user")
    described = replace(description, data=[*description.data, stranger])
    given = {**config({"rule": "linear"}), "data": "Data"}
    assert [str(one) for one in validate(Experiment.read(given, described))] == [
        "lr_scaling: needs a batch size, but the data set has no `batch_size`. Remove it, or set rule: none."
    ]
    assert validate(Experiment.read({**given, "lr_scaling": {"rule": "none"}}, described)) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (config({"rule": "none", "warmup_epochs": 1}), "has no effect, because rule none does not change the rate"),
        (
            config({"warmup_epochs": 1}, batch=64),
            "has no effect, because a batch of 64 does not raise a learning rate that is meant for a batch of 256",
        ),
        (config({"warmup_epochs": 5}, max_epochs=5), "is 5, but the run ends after 5 epochs"),
    ],
)
def test_a_warm_up_without_effect_is_a_warning(given: Any, why: str, description: Description) -> None:
    (problem,) = validate(Experiment.read(given, description))
    assert (problem.key, problem.message, problem.severity) == ("lr_scaling.warmup_epochs", why, "warning")


def test_a_complete_config_says_all_of_it_or_nothing(description: Description) -> None:
    done = Experiment(config({"per": 128}), description).to_run()
    assert done["lr_scaling"] == {"rule": "linear", "per": 128, "warmup_epochs": 0.0}
    assert Experiment(done, description).to_run() == done
    assert "lr_scaling" not in Experiment(config(None), description).to_run()
    assert "noise_scale" not in Experiment({**config(None), "noise_scale": False}, description).to_run()
    assert Experiment({**config(None), "noise_scale": True}, description).to_run()["noise_scale"] is True
    assert list(yaml.load(yaml.dump({**done, "noise_scale": True})))[-2:] == ["lr_scaling", "noise_scale"]


def test_what_means_the_same_has_one_hash(description: Description) -> None:
    without = {key: value for key, value in config(None).items() if key != "lr_scaling"}
    assert config_hash(Experiment.read(config(None), description)) == config_hash(Experiment.read(without, description))
    assert config_hash(Experiment.read({**without, "noise_scale": False}, description)) == config_hash(
        Experiment.read(without, description)
    )
    assert config_hash(Experiment.read({**without, "noise_scale": True}, description)) != config_hash(
        Experiment.read(without, description)
    )
    one: dict[str, Any] = {}
    other = {"rule": "linear", "per": 256, "warmup_epochs": 0}
    assert config_hash(Experiment.read(config(one), description)) == config_hash(
        Experiment.read(config(other), description)
    )
    assert config_hash(Experiment.read(config(one), description)) != config_hash(Experiment.read(without, description))


@pytest.mark.parametrize("value", [1, "yes"])
def test_the_noise_scale_is_measured_or_not(value: Any, description: Description) -> None:
    (problem,) = validate(Experiment.read({**config(None), "noise_scale": value}, description))
    assert str(problem).startswith(f"noise_scale: {value!r} is not true or false")
