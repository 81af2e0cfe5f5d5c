from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import ClassInfo, Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import read_search, search_problems
from scalebook.training.experiments.search.point import grid_points, resolve
from scalebook.training.experiments.search.presets import PRESETS, preset_body

pytestmark = pytest.mark.long

SYNC = {"class_path": "Sync", "init_args": {"backup_workers": 1}}
TRAINERS: list[dict[str, Any]] = [
    {"strategy": "auto"},
    {"strategy": "ddp", "devices": 2},
    {"strategy": "ddp", "devices": 3, "max_steps": 100},
    {"strategy": {"class_path": "AsyncPS", "init_args": {"rule": SYNC, "workers": 2}}},
    {"strategy": "AsyncPS", "devices": 2, "max_epochs": 3},
    {"sync_batchnorm": True, "accelerator": "cpu"},
]
NAMES = [one.name for one in PRESETS]
MLP: dict[str, Any] = {"model": "MLPClassifier", "data": "Digits"}


@pytest.mark.each_value
@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_preset_suits_every_model_and_data_set(name: str, trainer: Any, description: Description) -> None:
    for number, (model, data) in enumerate((model, data) for model in description.models for data in description.data):
        cores = (1, 2, 8)[number % 3]
        config = {"model": model.class_path, "data": data.class_path, "trainer": trainer}
        body = preset_body(name, Experiment.read(config, description), cores)
        found = [
            one
            for one in search_problems(body, Experiment.read(config, description), description, max(2, cores))
            if one.severity == "error"
        ]
        assert found == []
        spec = read_search(body, Experiment.read(config, description), description)
        assert spec.preset == name
        assert spec.objectives[0].name == model.metrics[0]


def test_batch_size(description: Description) -> None:
    space = preset_body("batch-size", Experiment.read(MLP, description), 2)["space"]
    assert space == {
        "batch_size": {"powers_of_two": [8, 512]},  # at least two updates an epoch of 1,437 images
        "learning_rate": {"log_uniform": [0.0005, 0.5], "per": 256, "rule": "linear", "warmup_epochs": 1.0},
    }
    limited = {**MLP, "data": {"class_path": "Digits", "init_args": {"limit": 100, "batch_size": 4}}}
    assert preset_body("batch-size", Experiment.read(limited, description), 2)["space"]["batch_size"] == {
        "powers_of_two": [4, 32]
    }
    large = {
        **MLP,
        "data": {"class_path": "Dataset", "init_args": {"path": "a.csv", "batch_size": 256, "limit": 54_000}},
    }
    assert preset_body("batch-size", Experiment.read(large, description), 2)["space"]["batch_size"] == {
        "powers_of_two": [8, 8192]
    }
    odd = {**MLP, "trainer": {"strategy": "ddp", "devices": 3}}
    assert preset_body("batch-size", Experiment.read(odd, description), 4)["scaling"] == "weak"


def test_strategies(description: Description) -> None:
    body = preset_body("strategies", Experiment.read(MLP, description), 4)
    assert body["space"]["workers"] == {"values": [2, 4]}
    assert body["space"]["strategy"] == {"values": ["single", "ddp", "async", "bounded"]}
    assert (body["objective"], body["exclusive"]) == (["val/accuracy", "seconds"], True)
    together = {**MLP, "trainer": {"sync_batchnorm": True}}
    assert preset_body("strategies", Experiment.read(together, description), 4)["space"]["strategy"] == {
        "values": ["single", "ddp"]
    }


def test_largest_rate(description: Description) -> None:
    spec = read_search(
        preset_body("largest-rate", Experiment.read(MLP, description), 4),
        Experiment.read(MLP, description),
        description,
    )
    points = list(grid_points(spec))
    assert len(points) == spec.trials == 30
    rates = sorted({point["learning_rate"] for point in points})
    assert (rates[0], rates[-1], len(rates)) == (0.001, 0.512, 10)
    assert {point["workers"] for point in points} == {1, 2, 4}
    loads = [Experiment.read(resolve(spec, point).written, description) for point in points]
    assert {(load.strategy.name, load.batch.per_worker) for load in loads} == {("AsyncPS", 32)}


def test_what_a_config_lacks_is_said(description: Description) -> None:
    odd = replace(description, data=[ClassInfo("my.Odd", "Odd")])
    with pytest.raises(ConfigError, match="Odd has no argument batch_size"):
        preset_body("batch-size", Experiment.read({"model": "MLPClassifier", "data": "Odd"}, odd), 2)
    assert (
        preset_body("strategies", Experiment.read({"model": "MLPClassifier", "data": "Odd"}, odd), 2)["scaling"]
        == "weak"
    )
    with pytest.raises(ConfigError, match="Did you mean `batch-size`"):
        preset_body("batch-sizes", Experiment.read(MLP, description), 2)


def test_each_says_what_it_answers() -> None:
    assert len(set(NAMES)) == len(NAMES) == 3
    for one in PRESETS:
        assert one.title
        assert one.text.endswith(".")
        assert one.text.count(". ") == 0
