"""Configs of several machines: which this process is on, the workers of all, and the queue."""

from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.cli.fit import place_of
from scalebook.training.cli.runner import over_nodes
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from tests.training.base.test_node_rank import TORCHRUN
from tests.training.runs import ASYNC, config


def test_the_parameter_server_is_started_on_each_as_well(description: Description) -> None:
    done = Experiment(config("AsyncPS", num_nodes=2, devices=3), description).to_run()
    found = place_of(Experiment.read(done, description), TORCHRUN)
    assert found is not None
    assert (found.count, found.index) == (6, 5)
    assert place_of(Experiment.read(Experiment(config(ASYNC), description).to_run(), description), {}) is None


def test_workers_are_those_of_all_machines(description: Description) -> None:
    asked: dict[str, Any] = config("auto", num_nodes=3, devices=2)
    done = Experiment(asked, description).to_run()
    assert done["trainer"]["strategy"] == "ddp"
    load = Experiment.read(asked, description)
    assert (
        load.strategy.workers,
        load.strategy.nodes,
        load.strategy.processes,
        load.strategy.gradients,
    ) == (6, 3, 2, 6)
    assert (load.batch.per_worker, load.batch.together, load.batch.effective) == (8, 48, 48)
    servers = Experiment.read(config({"class_path": "AsyncPS", "init_args": {"workers": 4}}, num_nodes=3), description)
    assert (servers.strategy.workers, servers.strategy.nodes, servers.strategy.processes) == (12, 3, 4)


def test_what_does_not_go_between_machines_is_said_before_the_start(description: Description) -> None:
    asked = config({"class_path": "AsyncPS", "init_args": {"host": "virtual"}}, num_nodes=2)
    problems = [one for one in validate(Experiment.read(asked, description), typed=True) if one.severity == "error"]
    assert "trainer.strategy.init_args.host" in [problem.key for problem in problems]


@pytest.mark.parametrize(
    ("workers", "more", "key", "said"),
    [
        ({"min": 1, "max": 4}, {}, None, ""),
        ({"min": 1, "max": 3}, {}, "workers.max", "is 3, but 2 nodes with 2 workers each make 4 workers"),
        ({"min": 5, "max": 4}, {}, "workers.max", "is 4, which is less than min (5)"),
        ({"min": 1, "max": 4}, {"rule": "sync"}, "workers", "an update of sync averages one"),
        ({"min": 4}, {}, "workers", "is {'min': 4}, not a number of workers"),
        ("many", {}, "workers", "is 'many', not a number of workers"),
        (0, {}, "workers", "is 0, not a number of workers"),
        (True, {}, "workers", "is True, not a number of workers"),
    ],
)
def test_how_many_workers_there_may_be_is_checked_before_the_start(
    workers: object, more: dict[str, Any], key: str | None, said: str, description: Description
) -> None:
    asked = config({"class_path": "AsyncPS", "init_args": {"workers": workers, **more}}, num_nodes=2, devices=2)
    problems = [one for one in validate(Experiment.read(asked, description), typed=True) if one.severity == "error"]
    assert [one.key for one in problems] == ([] if key is None else [f"trainer.strategy.init_args.{key}"])
    assert all(said in str(one) for one in problems)
    if key is None:
        assert Experiment.read(asked, description).strategy.workers == 4


def test_the_same_run_over_several_machines_has_as_many_workers(description: Description) -> None:
    asked = Experiment(config("ddp", devices=4), description).to_run()
    trainer = asked["trainer"]
    spread = over_nodes(trainer, 2)
    assert (spread["devices"], spread["num_nodes"]) == (2, 2)
    one, two = (Experiment.read({**asked, "trainer": each}, description) for each in (trainer, spread))
    assert (two.strategy.workers, two.batch.together, two.strategy.nodes) == (
        one.strategy.workers,
        one.batch.together,
        2,
    )
    assert over_nodes(spread, 2) == spread
    assert over_nodes(trainer, 0) == trainer


def test_the_queue_has_one_machine(description: Description) -> None:
    asked = config("ddp", num_nodes=2)
    assert validate(Experiment.read(asked, description), typed=True) == []
    (problem,) = validate(Experiment.read(asked, description))
    assert str(problem) == (
        "trainer.num_nodes: is 2, but jobs of this folder run on one machine. Add [cluster] to scalebook.toml (see "
        "docs/how-to/cluster.md), or start the run on each node with torchrun or srun and `scalebook fit -c FILE`."
    )
    assert validate(Experiment.read(asked, replace(description, clustered=True))) == []
    assert validate(Experiment.read(config("ddp", num_nodes=1), description)) == []
