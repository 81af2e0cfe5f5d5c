from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import SearchSpec, read_search
from scalebook.training.experiments.search.point import (
    canonical,
    grid_points,
    put_strategy,
    put_workers,
    resolve,
    summary,
)
from scalebook.training.experiments.validation import validate
from tests.training.experiments.searches import CONFIG

SERVER = {
    "class_path": "AsyncPS",
    "init_args": {"rule": {"class_path": "Bounded", "init_args": {"bound": 2}}, "shards": 3},
}


def search(space: str, description: Description, **told: Any) -> SearchSpec:
    config = {**CONFIG, "trainer": {**CONFIG["trainer"], **told.pop("trainer", {})}}
    body = {"config": config, "objective": "val/loss", **told, "space": yaml.load(space)}
    return read_search(body, None, description)


STRATEGIES = "{strategy: {values: [single, ddp, async, bounded, sync, softsync]}, workers: {values: [1, 2, 4]}}"


@pytest.mark.parametrize("word", ["single", "ddp", "async", "bounded", "sync", "softsync"])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_a_word_is_a_strategy_with_so_many_workers(
    word: str, workers: int, scaling: str, description: Description
) -> None:
    spec = search(STRATEGIES, description, scaling=scaling)
    config = resolve(spec, {"strategy": word, "workers": workers}).written
    load = Experiment.read(config, description)
    assert validate(Experiment.read(config, description)) == []
    assert load.strategy.workers == (1 if word == "single" else workers)
    assert load.strategy.name == (word if word in ("single", "ddp") else "AsyncPS")
    assert load.strategy.words is None if word in ("single", "ddp") else (load.strategy.words or "").startswith(word)
    batches = (load.batch.together, load.batch.per_worker)
    assert batches == ((16, 16 // load.strategy.workers) if scaling == "strong" else (16 * load.strategy.workers, 16))


@pytest.mark.parametrize(
    ("scaling", "strategy", "workers", "expected"),
    [
        ("strong", "single", 1, (64, 64)),
        ("strong", "ddp", 4, (16, 64)),
        ("strong", "async", 4, (16, 64)),
        ("weak", "single", 1, (64, 64)),
        ("weak", "ddp", 4, (64, 256)),
        ("weak", "async", 4, (64, 256)),
    ],
)
def test_the_batch_is_shared_out_or_given_to_each(
    scaling: str, strategy: str, workers: int, expected: tuple[int, int], description: Description
) -> None:
    spec = search(STRATEGIES[:-1] + ", batch_size: {powers_of_two: [16, 64]}}", description, scaling=scaling)
    config = resolve(spec, {"strategy": strategy, "workers": workers, "batch_size": 64}).written
    load = Experiment.read(config, description)
    assert (load.batch.per_worker, load.batch.together) == expected


def test_one_process_that_is_given_more_workers_becomes_ddp(description: Description) -> None:
    spec = search("{workers: {values: [1, 2]}}", description)
    assert resolve(spec, {"workers": 1}).written["trainer"]["strategy"] == "auto"
    two = resolve(spec, {"workers": 2}).written
    assert (two["trainer"]["strategy"], two["trainer"]["devices"]) == ("ddp", 2)
    assert two["data"]["init_args"]["batch_size"] == 8


def test_what_is_not_varied_stays_as_it_was_written(description: Description) -> None:
    base = {"strategy": "ddp", "devices": 2, "gradient_clip_val": 1.0}
    spec = search("{model.hidden: {int: [8, 64]}}", description, trainer=base)
    config = resolve(spec, {"model.hidden": 32}).written
    hidden = {"class_path": "MLPClassifier", "init_args": {"hidden": 32}}
    assert config == {**spec.experiment.written, "model": hidden}
    assert spec.experiment.written["trainer"] == {"max_epochs": 3, **base}
    assert resolve(spec, {}).written == spec.experiment.written


def test_settings_of_a_parameter_server_stay_when_its_rule_changes(description: Description) -> None:
    words = "{strategy: {values: [bounded, async, single]}}"
    spec = search(words, description, trainer={"strategy": SERVER, "devices": 2})
    same = resolve(spec, {"strategy": "bounded"}).written["trainer"]["strategy"]["init_args"]
    assert same == SERVER["init_args"]
    other = resolve(spec, {"strategy": "async"}).written["trainer"]["strategy"]["init_args"]
    assert other == {"rule": "async", "shards": 3}
    alone = resolve(spec, {"strategy": "single"}).written
    assert alone["trainer"] == {"max_epochs": 3, "strategy": "auto", "devices": 1}
    assert Experiment.read(alone, description).batch.together == 32


def test_a_cpu_needs_no_devices_for_a_parameter_server(description: Description) -> None:
    """`validate` warns of devices that differ from the workers there; on other machines workers share what there is."""
    text = "{strategy: {values: [async]}, workers: {values: [1, 4]}}"
    on_cpu = search(text, description, trainer={"accelerator": "cpu", "devices": 2, "strategy": "ddp"})
    config = resolve(on_cpu, {"strategy": "async", "workers": 4}).written
    assert "devices" not in config["trainer"]
    assert validate(Experiment.read(config, description)) == []
    elsewhere = search(text, description, trainer={"devices": 2, "strategy": "ddp"})
    devices = [resolve(elsewhere, {"strategy": "async", "workers": n}).written["trainer"]["devices"] for n in (1, 4)]
    assert devices == [1, 2]


def test_a_field_below_a_class_that_a_dimension_chooses(description: Description) -> None:
    text = "{strategy: {values: [ddp, bounded]}, trainer.strategy.rule.bound: {int: [1, 8]}}"
    spec = search(text, description, trainer={"devices": 2})
    config = resolve(spec, {"strategy": "bounded", "trainer.strategy.rule.bound": 3}).written
    assert Experiment.read(config, description).strategy.words == "bounded, bound 3"
    other = resolve(spec, {"strategy": "ddp", "trainer.strategy.rule.bound": 3}).written
    assert other["trainer"]["strategy"] == "ddp"


def test_classes_come_before_their_fields(description: Description) -> None:
    text = (
        "{optimizer.momentum: {uniform: [0, 0.9]}, optimizer: {values: [SGD, Adam]}, learning_rate: {grid: [0.1, 1]}}"
    )
    spec = search(text, description)
    config = resolve(spec, {"optimizer.momentum": 0.5, "optimizer": "SGD", "learning_rate": 1}).written
    assert config["optimizer"] == {"class_path": "SGD", "init_args": {"lr": 1, "momentum": 0.5}}
    config = resolve(spec, {"optimizer.momentum": 0.5, "optimizer": "Adam", "learning_rate": 0.1}).written
    assert config["optimizer"] == {"class_path": "Adam", "init_args": {"lr": 0.1}}


def test_the_learning_rate_goes_to_the_optimizer_that_the_run_would_have(description: Description) -> None:
    spec = search("{learning_rate: {grid: [0.1, 1.0], rule: sqrt, per: 32, warmup_epochs: 2}}", description)
    config = resolve(spec, {"learning_rate": 1.0}).written
    assert config["optimizer"]["init_args"] == {"lr": 1.0}
    assert config["lr_scaling"] == {"rule": "sqrt", "per": 32, "warmup_epochs": 2.0}
    body = {"objective": "val/loss", "space": {"learning_rate": {"grid": [0.1]}}}
    without = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    config = resolve(
        read_search(body, Experiment.read(without, description), description), {"learning_rate": 0.1}
    ).written
    assert config["optimizer"] == {**description.default_optimizer, "init_args": {"lr": 0.1}}
    assert "lr_scaling" not in config


@pytest.mark.parametrize(
    ("seconds", "written"), [(20, "00:00:00:20"), (90, "00:00:01:30"), (7325, "00:02:02:05"), (200_000, "02:07:33:20")]
)
def test_a_budget_of_time_replaces_the_epochs(seconds: int, written: str, description: Description) -> None:
    spec = search("{model.hidden: {int: [8, 64]}}", description, seconds_per_trial=seconds)
    config = resolve(spec, {"model.hidden": 8}).written
    assert config["trainer"] == {"strategy": "auto", "max_time": written}
    assert validate(Experiment.read(config, description)) == []


def test_a_point_that_cannot_be_says_why(description: Description) -> None:
    text = "{batch_size: {int: [8, 64], step: 8}, workers: {values: [1, 2]}}"
    spec = search(text, description)
    with pytest.raises(ConfigError, match=r"batch_size: 9 cannot be split over 2 workers\. Use a multiple of 2"):
        resolve(spec, {"batch_size": 9, "workers": 2})
    with pytest.raises(ConfigError, match=r"hidden: is not a dimension of this search\. Known: batch_size, workers\."):
        resolve(spec, {"hidden": 9})


def test_one_process_runs_once_whatever_the_workers(description: Description) -> None:
    spec = search("{strategy: {values: [single, ddp]}, workers: {values: [2, 4]}}", description)
    assert list(grid_points(spec)) == [
        {"strategy": "single", "workers": 2},
        {"strategy": "ddp", "workers": 2},
        {"strategy": "ddp", "workers": 4},
    ]
    assert canonical(spec, {"strategy": "single", "workers": 4}) == {"strategy": "single", "workers": 2}
    assert canonical(spec, {"strategy": "ddp", "workers": 4}) == {"strategy": "ddp", "workers": 4}
    one, other = (resolve(spec, {"strategy": "single", "workers": n}).written for n in (2, 4))
    assert one == other


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (
            {"batch_size": 64, "learning_rate": 0.1, "strategy": "async", "workers": 2, "model.hidden": 32},
            "batch 64, rate 0.1, async × 2, hidden 32",
        ),
        ({"strategy": "single", "workers": 2}, "single"),
        ({"workers": 1}, "1 worker"),
        ({"workers": 4, "learning_rate": 1 / 3}, "rate 0.333, 4 workers"),
        ({}, ""),
    ],
)
def test_a_point_in_few_words(point: dict[str, Any], words: str, description: Description) -> None:
    space = """{model.hidden: {int: [8, 64]}, strategy: {values: [single, async]}, workers: {values: [1, 2, 4]},
               batch_size: {powers_of_two: [8, 64]}, learning_rate: {log_uniform: [0.1, 1]}}"""
    assert summary(search(space, description), point) == words


def test_fields_of_one_name_are_told_apart(description: Description) -> None:
    space = "{data.limit: {int: [8, 16]}, trainer.strategy.damping.limit: {int: [1, 2]}, threads: {int: [1, 2]}}"
    server = {"class_path": "AsyncPS", "init_args": {"damping": "drop_above"}}
    spec = search(space, description, trainer={"strategy": server, "devices": 2})
    point = {"data.limit": 9, "trainer.strategy.damping.limit": 2, "threads": 1}
    assert summary(spec, point) == "data.limit 9, trainer.strategy.damping.limit 2, threads 1"
    assert Experiment.read(resolve(spec, point).written, description).strategy.words == "async, drop above 2"


def test_workers_of_several_machines_are_shared_out_to_them(description: Description) -> None:
    for strategy in ("ddp", {"class_path": "AsyncPS"}):
        trainer = {"strategy": strategy, "devices": 1, "num_nodes": 2}
        clustered = replace(description, clustered=True)
        spec = search("{workers: {values: [2, 4]}}", clustered, trainer=trainer)
        config = resolve(spec, {"workers": 4}).written
        assert (
            Experiment.read(config, description).strategy.workers,
            Experiment.read(config, description).strategy.nodes,
        ) == (4, 2)
        with pytest.raises(ConfigError, match=r"3 cannot be split over 2 nodes\. Use multiples of 2"):
            put_workers(Experiment.read(config, description), 3)
        assert "num_nodes" not in put_strategy(Experiment.read(config, description), "single").written["trainer"]
