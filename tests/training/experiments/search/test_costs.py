from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.costs import Cost, cost
from scalebook.training.experiments.search.definition import read_search
from tests.training.experiments.searches import CONFIG

HIDDEN = "{model.hidden: {int: [8, 64]}}"
WORKERS = "{strategy: {values: [single, ddp]}, workers: {values: [2, 4]}}"


@pytest.mark.parametrize(
    ("space", "told", "cores", "seconds", "expected"),
    [
        (HIDDEN, {"trials": 60}, 2, 3.0, Cost(60, 3.0, 1.5, 2)),
        (HIDDEN, {"trials": 60, "seeds": 3}, 2, 3.0, Cost(180, 3.0, 4.5, 2)),
        (HIDDEN, {"trials": 60, "exclusive": True}, 2, 3.0, Cost(60, 3.0, 3.0, 1)),
        (HIDDEN, {"trials": 1}, 8, 3.0, Cost(1, 3.0, 0.05, 1)),
        (HIDDEN, {"trials": 60}, 2, None, Cost(60, None, None, 2)),
        (HIDDEN, {"trials": 60, "minutes": 1}, 2, 3.0, Cost(60, 3.0, 1, 2)),
        (HIDDEN, {"trials": 60, "minutes": 10}, 2, None, Cost(60, None, 10, 2)),
        (HIDDEN, {"trials": 60, "seconds_per_trial": 6}, 2, 3.0, Cost(60, 6, 3.0, 2)),
        (WORKERS, {"trials": 8}, 4, 30.0, Cost(8, 30.0, 2.0, 2)),  # 2 workers in the mean: 1, 1, 2, 4
        (WORKERS, {"trials": 100, "sampler": "grid"}, 4, 30.0, Cost(3, 30.0, 0.75, 2)),  # single runs once
        (WORKERS, {"trials": 2, "sampler": "grid"}, 1, 30.0, Cost(2, 30.0, 1.0, 1)),
        ("{threads: {values: [1, 3]}}", {"trials": 8}, 4, 30.0, Cost(8, 30.0, 2.0, 2)),
    ],
)
def test_runs_and_minutes(
    space: str, told: dict[str, Any], cores: int, seconds: float | None, expected: Cost, description: Description
) -> None:
    spec = read_search(
        {"objective": "val/loss", "space": yaml.load(space), **told}, Experiment.read(CONFIG, description), description
    )
    assert cost(spec, cores, seconds) == expected


@pytest.mark.parametrize(
    ("space", "at_a_time"),
    [
        (HIDDEN, 2),
        ("{workers: {values: [8, 128]}}", 2),
        ("{strategy: {values: [async, sync]}}", 2),
        ("{strategy: {values: [sync, ddp]}, workers: {values: [2, 4]}}", 1),  # 1 and 3 processes in the mean: 2
    ],
)
def test_a_virtual_run_has_one_process(space: str, at_a_time: int, description: Description) -> None:
    given = {"host": "virtual", "workers": 8, "clock": {"gradient_s": 0.05}}
    strategy = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": given}
    config = {**CONFIG, "trainer": {"strategy": strategy, "max_epochs": 3}}
    search = {"objective": "val/loss", "space": yaml.load(space), "trials": 8}
    assert (
        cost(read_search(search, Experiment.read(config, description), description), 2, 3.0).side_by_side == at_a_time
    )
