"""What a config may say of a model over several workers, before anything starts."""

from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.split_degrees import refuse_degrees
from scalebook.training.experiments.validate import validate
from tests.training.runs import config

ARGUMENTS = "trainer.strategy.init_args"
CLOCK = {"gradient_s": 0.05}


def test_degrees_that_make_the_workers() -> None:
    for tensor, shard, workers in ((1, None, 1), (2, None, 8), (2, 4, 8), (1, 8, 8)):
        refuse_degrees(tensor, shard, workers)
    for workers, stages, microbatches in ((2, 2, None), (8, 4, 4)):
        refuse_degrees(1, None, workers, stages, microbatches)
    with pytest.raises(ConfigError, match=r"init_args.stages: .* which do not go with tensor 2 x shard 2"):
        refuse_degrees(2, 2, 8, 2)
    with pytest.raises(ConfigError, match=r"init_args.tensor: tensor 2 x shard 2 is not the 8 .*devices: 4"):
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
        ({"host": "virtual", "clock": CLOCK}, {"devices": 81}, []),
        ({"tensor": 81, "host": "virtual", "clock": CLOCK}, {"devices": 1}, []),
        ({"tensor": 2, "shard": 2, "host": "virtual", "clock": CLOCK}, {"devices": 6}, [f"{ARGUMENTS}.tensor"]),
        ({"host": "virtual"}, {}, [f"{ARGUMENTS}.clock"]),
        ({"clock": CLOCK}, {}, [f"{ARGUMENTS}.clock"]),
        ({"host": "virtual", "clock": {**CLOCK, "server_s": 0.1}}, {}, [f"{ARGUMENTS}.clock.server_s"]),
        ({"host": "virtual", "clock": {**CLOCK, "links": {0: {"latency_s": 1}}}}, {}, [f"{ARGUMENTS}.clock.links"]),
        ({"host": "virtual", "clock": {**CLOCK, "group": {"machines": 2}}}, {}, [f"{ARGUMENTS}.clock.group"]),
        ({"host": "virtual", "clock": {"gradient_s": 0.0}}, {}, [f"{ARGUMENTS}.clock.gradient_s"]),
        ({"host": "virtual", "clock": CLOCK}, {"num_nodes": 2}, 2 * ["trainer.num_nodes"]),
    ],
)
def test_problems_name_their_key(
    degrees: dict[str, Any], beside: dict[str, Any], problems: list[str], description: Description
) -> None:
    strategy = {"class_path": "ModelParallel", "init_args": degrees}
    assert [one.key for one in validate(Experiment.read(config(strategy, **beside), description))] == problems


def test_the_noise_scale_needs_a_whole_model(description: Description) -> None:
    found = validate(Experiment.read(config("model_parallel") | {"noise_scale": True}, description))
    assert [(one.key, one.remedy) for one in found] == [("noise_scale", "Write false.")]
