"""What a model's sparse tables forbid is said before the run, by key and remedy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files.records import save
from scalebook.training.experiments import model_parameters
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_conflicts import asks
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
    return {one.key.removeprefix("trainer.strategy.init_args."): f"{one.message}. {one.fix}" for one in found}


ONCE = "but the model's sparse tables lie in memory only once, and their rows are sent uncompressed."


@pytest.mark.parametrize(
    ("args", "key", "said"),
    [
        ({"local": "diloco"}, "local", f"is diloco, {ONCE} Write none, or sparse: false in the model."),
        ({"local": "downpour"}, "local", f"is downpour, {ONCE} Write none, or sparse: false in the model."),
        ({"push_codec": "int8"}, "push_codec", f"is int8, {ONCE} Write fp32, or sparse: false in the model."),
        ({"pull_codec": "bf16"}, "pull_codec", f"is bf16, {ONCE} Write fp32, or sparse: false in the model."),
        (
            {"damping": {"class_path": "DelayCompensation", "init_args": {"adaptive": True}}}, "damping",
            f"is adaptive, {ONCE} Write adaptive: false there, or sparse: false in the model.",
        ),
    ],
)  # fmt: skip
def test_settings(args: dict[str, Any], key: str, said: str, description: Description, tmp_path: Path) -> None:
    sparse = with_model(description, tmp_path / "sparse", TABLE, LAYER)
    assert errors(sparse, config(SGD, **args)) == {key: said}
    assert asks(Experiment.read(config(SGD, **args), sparse))
    assert errors(with_model(description, tmp_path / "dense", LAYER), config(SGD, **args)) == {}
    assert errors(description, config(SGD, **args)) == {}, "nobody has looked at the model"
    assert errors(sparse, config(SGD, host="inline")) == {}
    assert not asks(Experiment.read(config(SGD, host="inline"), sparse))


def test_a_parameter_server_steps_on_rows_with_optimizers_that_can(description: Description, tmp_path: Path) -> None:
    sparse = with_model(description, tmp_path, TABLE, LAYER)
    cannot = (
        "is Adam, which changes rows that a sparse gradient does not have. Use torch.optim.SGD with momentum 0 and "
        "weight_decay 0, Adagrad or SparseAdam, or sparse: false in the model."
    )
    assert errors(sparse, config(None)) == {"optimizer": cannot}, "by default"
    momentum = {**SGD, "init_args": {"lr": 0.1, "momentum": 0.9}}
    said = errors(sparse, config(momentum))["optimizer"]
    assert said.startswith(
        "has momentum 0.9, which changes rows that a sparse gradient does not have. Use torch.optim.SGD"
    )
    assert errors(sparse, config({**SGD, "class_path": "torch.optim.Adagrad"})) == {}
    assert errors(sparse, config(momentum, "ddp")) == {}


@pytest.mark.parametrize("strategy", ["auto", "ddp", SERVER])
def test_sparse_adam_steps_on_tables_alone(strategy: str, description: Description, tmp_path: Path) -> None:
    asked = config(SPARSE_ADAM, strategy)
    alone = "is SparseAdam, which steps only on sparse gradients, and layer.weight has a dense one. Use "
    assert errors(with_model(description, tmp_path / "both", TABLE, LAYER), asked) == {
        "optimizer": f"{alone}torch.optim.SGD without momentum or Adagrad, which step on both."
    }
    assert errors(with_model(description, tmp_path / "dense", LAYER), asked) == {
        "optimizer": f"{alone}torch.optim.Adam, or a model with sparse tables alone, such as Ranker with sparse: true."
    }
    assert errors(with_model(description, tmp_path / "tables", TABLE, FROZEN), asked) == {}
    assert asks(Experiment.read(asked, description))
