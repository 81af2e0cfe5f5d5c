import pytest

from scalebook.training.experiments.description import Description
from tests.training.experiments.searches import problems


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            "{batch_size: {powers_of_two: [1, 64]}, workers: {values: [1, 4]}}",
            (
                "space.batch_size: has global batches that 4 workers cannot split equally: 1, 2. Set powers_of_two: "
                "[4, 64], or scaling: weak"
            ),
        ),
        (
            "{batch_size: {powers_of_two: [8, 64]}, workers: {values: [3]}}",
            (
                "space.batch_size: has global batches that 3 workers cannot split equally: 8, 16, 32 and more. Set "
                "int: [9, 63] with step: 3, or scaling: weak"
            ),
        ),
        (
            "{batch_size: {int: [10, 100]}, workers: {int: [1, 2]}, strategy: {values: [ddp, single]}}",
            "Set int: [10, 100] with step: 2, or scaling: weak",
        ),
        (
            "{batch_size: {values: [7]}, workers: {grid: [2]}}",
            "Use batch sizes that are multiples of 2, or scaling: weak",
        ),
        (
            "{workers: {values: [1, 3, 5]}}",
            (
                "space.workers: cannot split the experiment's global batch of 16 equally among 3 or 5 workers. Use a "
                "batch size in the experiment that is a multiple of 15, or set scaling: weak."
            ),
        ),
    ],
)
def test_a_batch_that_cannot_be_shared_out(space: str, said: str, description: Description) -> None:
    (problem,) = [one for one in problems(space, description) if one.severity == "error"]
    assert said in str(problem)
    assert [one for one in problems(space, description, scaling="weak") if one.severity == "error"] == []


@pytest.mark.parametrize(
    "space",
    [
        "{batch_size: {int: [10, 100], step: 2}, workers: {values: [1, 2]}}",
        "{batch_size: {int: [7, 9]}, strategy: {values: [single]}, workers: {values: [4]}}",
        "{batch_size: {int: [2, 1000000000000], step: 2}, workers: {values: [2]}}",
    ],
)
def test_a_batch_that_can(space: str, description: Description) -> None:
    assert problems(space, description) == []
