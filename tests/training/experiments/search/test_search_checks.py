from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from tests.training.experiments.searches import problems


def test_combinations_that_cannot_run_are_named(description: Description) -> None:
    server = "{class_path: AsyncPS, init_args: {rule: {class_path: Sync, init_args: {backup_workers: 1}}}}"
    space = f"{{strategy: {{values: [{server}, ddp]}}, workers: {{values: [2, 1]}}}}"
    (problem,) = problems(space, description)
    assert problem.key == "space.workers"
    assert "AsyncPS rule=(Sync backup_workers=1) × 1 cannot run:" in problem.message
    assert "would leave none of the" in problem.message


def test_a_parameter_server_that_the_trainer_does_not_allow(description: Description) -> None:
    (problem,) = problems(
        "{strategy: {values: [ddp, async]}}", description, trainer={"sync_batchnorm": True, "devices": 2}
    )
    assert problem.key == "space.strategy"
    assert problem.message.startswith(
        "async cannot run: trainer.sync_batchnorm needs a batch that all workers compute together"
    )


def test_one_process_beside_numbers_of_workers(description: Description) -> None:
    (warning,) = problems("{strategy: {values: [single, ddp]}, workers: {values: [1, 2, 4]}}", description)
    assert warning.severity == "warning"
    assert warning.message == "skips single × 2, single × 4, because single always has one worker"


@pytest.mark.parametrize(
    ("space", "trainer", "key"),
    [
        ("{workers: {values: [1, 4]}}", {}, "space.workers"),
        ("{model.hidden: {int: [8, 9]}}", {"strategy": "ddp", "devices": 4}, "config"),
    ],
)
def test_more_workers_than_cores(space: str, trainer: Any, key: str, description: Description) -> None:
    (warning,) = problems(space, description, cores=2, trainer=trainer)
    assert (warning.key, warning.severity) == (key, "warning")
    assert "4 workers with 1 thread each would share 2 cores" in warning.message
    assert problems(space, description, cores=4, trainer=trainer) == []
