import copy
from typing import Any

import pytest

from scalebook.app.runs.services.experiments import simulated_copy
from scalebook.training.config.description import Description
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.notebook.cells import ExperimentCell
from tests.app.recorded import ASYNC, config


@pytest.mark.parametrize("strategy", [ASYNC, "AsyncPS"])
def test_more_workers_than_there_are_begin_from_an_experiment(description: Description, strategy: Any) -> None:
    """As virtual ones, in a config that is right; the experiment stays as it is."""
    body = config(workers=8, strategy=strategy)
    cell = ExperimentCell("", "a", 3, copy.deepcopy(body))
    draft = simulated_copy("first-steps", cell, 8)
    assert (draft.notebook, draft.cell, draft.repeats) == ("first-steps", "", 3)
    load = workload(draft.config, description)
    assert (load.is_simulated, load.workers, load.processes) == (True, 32, 1)
    assert [problem for problem in validate(draft.config, description) if problem.severity == "error"] == []
    assert cell.config == body
