from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files.records import save
from scalebook.training.experiments import model_parameters
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_conflicts import problems
from scalebook.training.experiments.model_parameters import ModelParameter, ModelParameters, cached_parameters, find_out

CONFIG: dict[str, Any] = {"model": "MLPClassifier", "data": "Digits"}


def found(description: Description, codec: Any, **trainer: Any) -> list[tuple[str, str, str]]:
    strategy = {"class_path": "scalebook.training.lightning.DDP", "init_args": {"codec": codec}}
    config = {"model": "PixelCNN", "data": "Digits", "trainer": {"devices": 2, **trainer, "strategy": strategy}}
    return [(problem.code, problem.key, problem.severity) for problem in problems(Experiment.read(config, description))]


def test_a_codec_of_ddp_that_cannot_be_or_does_nothing(description: Description) -> None:
    key = "trainer.strategy.init_args.codec"
    assert found(description, "sign", accelerator="gpu") == [("contradiction", key, "error")]
    assert found(description, "sign", devices=1) == [("no-effect", key, "warning")]


@pytest.mark.parametrize("codec", ["bf16", "fp32", "unknown"])
def test_others_are_fine_or_said_elsewhere(codec: str, description: Description) -> None:
    assert found(description, codec, accelerator="gpu") == []


@pytest.fixture
def small(tmp_path: Path, description: Description) -> Description:
    """With a cache in which stands what the model has: a matrix, and a vector."""
    folder = replace(description, folder=str(tmp_path))
    place = model_parameters.kept_at("parameters", Experiment.read(CONFIG, folder))
    assert place is not None
    place.parent.mkdir(parents=True)
    shapes = [ModelParameter("weight", [20, 10], "float32"), ModelParameter("bias", [20], "float32")]
    save(place, ModelParameters(shapes))
    return folder


def errors(description: Description, strategy: str, **args: Any) -> dict[str, str]:
    path = f"scalebook.training.lightning.{strategy}"
    config = {**CONFIG, "trainer": {"devices": 2, "strategy": {"class_path": path, "init_args": args}}}
    return {
        one.key.removeprefix("trainer.strategy.init_args."): one.code
        for one in problems(Experiment.read(config, description))
    }


@pytest.mark.parametrize(("strategy", "name"), [("AsyncPS", "push_codec"), ("AsyncPS", "pull_codec"), ("DDP", "codec")])
def test_what_the_models_shapes_forbid_is_said_before_the_run(
    strategy: str, name: str, small: Description, description: Description
) -> None:
    rank = {name: {"class_path": "PowerSgd", "init_args": {"rank": 7}}}
    assert errors(small, strategy, **rank) == {f"{name}.init_args.rank": "out-of-bounds"}
    share = {name: {"class_path": "TopK", "init_args": {"share": 0.001}}}
    assert errors(small, strategy, **share) == {f"{name}.init_args.share": "out-of-bounds"}
    assert errors(small, strategy, **{name: "topk"}) == {}
    assert errors(description, strategy, **rank) == {}, "nobody has asked for the shapes"


def test_feedback_of_a_pull_has_no_effect(small: Description) -> None:
    given = {"class_path": "Bf16", "init_args": {"error_feedback": True}}
    assert list(errors(small, "AsyncPS", pull_codec=given)) == ["pull_codec.init_args.error_feedback"]
    assert errors(small, "AsyncPS", push_codec=given) == errors(small, "AsyncPS", pull_codec="bf16") == {}


def test_whole_numbers_are_no_codecs_business(small: Description) -> None:
    place = model_parameters.kept_at("parameters", Experiment.read(CONFIG, small))
    assert place is not None
    save(
        place,
        ModelParameters([ModelParameter("weight", [20, 10], "float32"), ModelParameter("at", [3], "int64", False)]),
    )
    assert errors(small, "AsyncPS", push_codec="int8") == {"push_codec": "contradiction"}
    assert errors(small, "AsyncPS") == {}


@pytest.mark.usefixtures("forked_descriptions")
def test_the_model_is_made_with_the_data_that_shapes_it(small: Description) -> None:
    """In a process of its own; what it tells is kept by what the model was given."""
    wider = {**CONFIG, "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 24, "layers": 1}}}
    assert cached_parameters(Experiment.read(wider, small)) is None
    find_out(Experiment.read(wider, small))
    found = cached_parameters(Experiment.read(wider, small))
    assert found is not None
    assert found.problem == ""
    assert (24, 64) in found.shapes
    assert (10, 24) in found.shapes
    assert found.width == 4
