"""Configs of several machines: which this process is on, the workers of all, and the queue."""

from typing import Any

import pytest

from scalebook.training.config.complete import complete
from scalebook.training.config.description import Description
from scalebook.training.config.nodes import place_of
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from tests.training.runs import ASYNC, config
from tests.training.test_nodes import TORCHRUN


def test_what_is_started_once_is_not_started_on_several(description: Description) -> None:
    done = complete(config(ASYNC), description)
    with pytest.raises(ConfigError, match=r"trainer.strategy: .* torchrun started 2\. Write ddp, or start it by itsel"):
        place_of(done, {**TORCHRUN, "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, description)
    assert place_of(done, {}, description) is None


def test_workers_are_those_of_all_machines(description: Description) -> None:
    asked: dict[str, Any] = config("auto", num_nodes=3, devices=2)
    done = complete(asked, description)
    assert done["trainer"]["strategy"] == "ddp"
    load = workload(asked, description)
    assert (load.workers, load.nodes, load.processes, load.gradients) == (6, 3, 2, 6)
    assert (load.batch_per_worker, load.batch_global, load.batch_effective) == (8, 48, 48)


def test_the_queue_has_one_machine(description: Description) -> None:
    asked = config("ddp", num_nodes=2)
    assert validate(asked, description, typed=True) == []
    (problem,) = validate(asked, description)
    assert str(problem) == (
        "trainer.num_nodes: is 2, and a job of the queue runs on one machine. Start it with torchrun or srun, and "
        "`scalebook fit -c FILE`, on each machine."
    )
    assert validate(config("ddp", num_nodes=1), description) == []
