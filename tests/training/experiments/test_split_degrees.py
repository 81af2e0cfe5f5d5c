"""What a config may say of a model over several workers, before anything starts."""

from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.split_degrees import refuse_degrees
from scalebook.training.experiments.validation import validate
from tests.training.engine.refusing import refused
from tests.training.runs import config

ARGUMENTS = "trainer.strategy.init_args"


def test_degrees_that_make_the_workers() -> None:
    for tensor, shard, workers in ((1, None, 1), (2, None, 8), (2, 4, 8), (1, 8, 8)):
        refuse_degrees(tensor, shard, workers)
    for workers, stages, microbatches in ((2, 2, None), (8, 4, 4)):
        refuse_degrees(1, None, workers, stages, microbatches)
    with refused("contradiction stages"):
        refuse_degrees(2, 2, 8, 2)
    with refused("contradiction tensor"):
        refuse_degrees(2, 2, 8)


@pytest.mark.parametrize(
    ("degrees", "beside", "problems"),
    [
        ({}, {}, []),
        ({"tensor": 2}, {"precision": "bf16-mixed"}, []),
        ({"tensor": 4}, {}, ["trainer.strategy.init_args.tensor"]),
        ({"shard": 1}, {}, ["trainer.strategy.init_args.tensor"]),
        ({"tensor": "two"}, {}, ["trainer.strategy.init_args.tensor"]),
        ({"tensor": 0}, {}, ["trainer.strategy.init_args.tensor"]),
        ({"stages": 2, "microbatches": 1, "schedule": "gpipe"}, {}, []),
        ({"stages": 2, "microbatches": 1}, {}, ["trainer.strategy.init_args.microbatches"]),
        ({"microbatches": 4}, {}, ["trainer.strategy.init_args.microbatches"]),
        ({"stages": 3}, {}, ["trainer.strategy.init_args.stages"]),
        ({"stages": 2, "tensor": 2}, {}, ["trainer.strategy.init_args.stages"]),
        ({"stages": 2, "shard": 2}, {}, ["trainer.strategy.init_args.stages"]),
        ({"stages": 2, "schedule": "zero_bubble"}, {}, ["trainer.strategy.init_args.schedule"]),
        ({}, {"sync_batchnorm": True}, ["trainer.sync_batchnorm"]),
        ({}, {"precision": "64-true"}, ["trainer.precision"]),
    ],
)
def test_problems_name_their_key(
    degrees: dict[str, Any], beside: dict[str, Any], problems: list[str], description: Description
) -> None:
    strategy = {"class_path": "ModelParallel", "init_args": degrees}
    assert [one.key for one in validate(Experiment.read(config(strategy, **beside), description))] == problems


def test_the_noise_scale_needs_a_whole_model(description: Description) -> None:
    found = validate(Experiment.read(config("model_parallel") | {"noise_scale": True}, description))
    assert [(one.key, one.fix) for one in found] == [("noise_scale", "Use false.")]


@pytest.mark.parametrize("name", ["host", "clock"])
def test_a_split_has_no_virtual_workers_and_the_planner_says_how_long_it_takes(
    name: str, description: Description
) -> None:
    written = {"host": "virtual", "clock": {"gradient_s": 0.05}}[name]
    found = validate(
        Experiment.read(config({"class_path": "ModelParallel", "init_args": {name: written}}), description)
    )
    assert [(one.key, one.severity) for one in found] == [(f"{ARGUMENTS}.{name}", "error")]
    assert "`scalebook plan --split`" in found[0].fix
