"""What a model's sparse tables forbid is said before the run, by code and key."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files.records import save
from scalebook.training.experiments import model_parameters
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_conflicts import asks_for_parameters
from scalebook.training.experiments.model_parameters import ModelParameter, ModelParameters
from scalebook.training.experiments.validation import validate

TABLE = ModelParameter("table.weight", [50, 4], "float32", sparse=True)
LAYER = ModelParameter("layer.weight", [4, 4], "float32")
FROZEN = ModelParameter("frozen", [4], "float32", trained=False)
SERVER = "scalebook.training.lightning.AsyncPS"
SGD: dict[str, Any] = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
SPARSE_ADAM = {"class_path": "torch.optim.SparseAdam", "init_args": {"lr": 0.1}}


def config(optimizer: Any, strategy: str = SERVER, **args: Any) -> dict[str, Any]:
    trainer = {"devices": 2, "strategy": {"class_path": strategy, "init_args": args} if args else strategy}
    return {"model": "MLPClassifier", "data": "Digits", "optimizer": optimizer, "trainer": trainer}


def with_model(description: Description, folder: Path, *parameters: ModelParameter) -> Description:
    """A cache in which stands what the model has."""
    known = replace(description, folder=str(folder))
    place = model_parameters.kept_at("parameters", Experiment.read(config(SGD), known))
    assert place is not None
    place.parent.mkdir(parents=True)
    save(place, ModelParameters(list(parameters)))
    return known


def errors(description: Description, asked: dict[str, Any]) -> dict[str, str]:
    found = [one for one in validate(Experiment.read(asked, description)) if one.severity == "error"]
    return {one.key.removeprefix("trainer.strategy.init_args."): one.code for one in found}


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"local": "diloco"}, "local"),
        ({"local": "downpour"}, "local"),
        ({"push_codec": "int8"}, "push_codec"),
        ({"pull_codec": "bf16"}, "pull_codec"),
        ({"damping": {"class_path": "DelayCompensation", "init_args": {"adaptive": True}}}, "damping"),
    ],
)
def test_settings(args: dict[str, Any], key: str, description: Description, tmp_path: Path) -> None:
    sparse = with_model(description, tmp_path / "sparse", TABLE, LAYER)
    assert errors(sparse, config(SGD, **args)) == {key: "sparse-tables"}
    assert asks_for_parameters(Experiment.read(config(SGD, **args), sparse))
    assert errors(with_model(description, tmp_path / "dense", LAYER), config(SGD, **args)) == {}
    assert errors(description, config(SGD, **args)) == {}, "nobody has looked at the model"
    assert errors(sparse, config(SGD, host="inline")) == {}
    assert not asks_for_parameters(Experiment.read(config(SGD, host="inline"), sparse))


def test_a_parameter_server_steps_on_rows_with_optimizers_that_can(description: Description, tmp_path: Path) -> None:
    sparse = with_model(description, tmp_path, TABLE, LAYER)
    assert errors(sparse, config(None)) == {"optimizer": "optimizer-not-supported"}, "Adam, by default"
    momentum = {**SGD, "init_args": {"lr": 0.1, "momentum": 0.9}}
    assert errors(sparse, config(momentum)) == {"optimizer": "optimizer-not-supported"}
    assert errors(sparse, config({**SGD, "class_path": "torch.optim.Adagrad"})) == {}
    assert errors(sparse, config(momentum, "ddp")) == {}


@pytest.mark.parametrize("strategy", ["auto", "ddp", SERVER])
def test_sparse_adam_steps_on_tables_alone(strategy: str, description: Description, tmp_path: Path) -> None:
    asked = config(SPARSE_ADAM, strategy)
    for name, *parameters in (("both", TABLE, LAYER), ("dense", LAYER)):
        known = with_model(description, tmp_path / name, *parameters)
        assert errors(known, asked) == {"optimizer": "optimizer-not-supported"}
    assert errors(with_model(description, tmp_path / "tables", TABLE, FROZEN), asked) == {}
    assert asks_for_parameters(Experiment.read(asked, description))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            config(SGD, push_codec="int8"),
            (
                "push_codec: is int8, but sparse tables exist only once in memory, and rows of sparse tables are sent "
                "uncompressed. Use fp32, or sparse: false in the model."
            ),
        ),
        (
            config(None),
            (
                "optimizer: is Adam, which changes rows that are not in a sparse gradient. Use torch.optim.SGD with "
                "momentum 0 and weight_decay 0, Adagrad or SparseAdam, or sparse: false in the model."
            ),
        ),
        (
            config(SPARSE_ADAM),
            (
                "optimizer: is SparseAdam, which steps only on sparse gradients, but the gradient of layer.weight is "
                "dense. Use Adagrad, or torch.optim.SGD without momentum: both step on sparse and dense gradients."
            ),
        ),
    ],
)
def test_what_is_said(asked: dict[str, Any], said: str, description: Description, tmp_path: Path) -> None:
    sparse = with_model(description, tmp_path, TABLE, LAYER)
    (problem,) = [one for one in validate(Experiment.read(asked, sparse)) if one.severity == "error"]
    assert str(problem).removeprefix("trainer.strategy.init_args.") == said
