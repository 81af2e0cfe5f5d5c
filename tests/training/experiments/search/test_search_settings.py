from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from tests.training.experiments.searches import problems

SPACE = "{learning_rate: {log_uniform: [0.1, 1]}, model.hidden: {int: [8, 64]}}"
CHOICES = "{model.activation: {values: [relu, tanh]}}"


@pytest.mark.parametrize(
    ("space", "told", "severity", "said"),
    [
        (
            SPACE,
            {"pruner": "median", "objective": ["val/loss", "seconds"], "exclusive": True},
            "error",
            "pruner: is median, which",
        ),
        (
            SPACE,
            {"pruner": "asha", "objective": "samples"},
            "error",
            "pruner: is asha, which compares a metric during training",
        ),
        (SPACE, {"pruner": "wilcoxon"}, "error", "pruner: is wilcoxon, which compares seeds, but there is only one."),
        (
            SPACE,
            {"pruner": "wilcoxon", "seeds": 3},
            "warning",
            "pruner: is wilcoxon, which cannot decide from 3 seeds.",
        ),
        (CHOICES, {"sampler": "qmc"}, "warning", "sampler: is qmc, which can only draw model.activation at random."),
        (
            SPACE,
            {"sampler": "grid"},
            "error",
            "space.learning_rate: has no points for the grid sampler to visit. Set log_uniform: [0.1, 1]",
        ),
        (
            "{model.hidden: {int: [1, 1000000]}}",
            {"sampler": "grid"},
            "error",
            "space.model.hidden: has 1,000,000 values",
        ),
        (
            "{model.hidden: {int: [1, 9]}}",
            {"sampler": "grid", "trials": 5},
            "warning",
            "trials: are 5, but the grid has 9 points.",
        ),
        (
            SPACE,
            {"objective": "val/los"},
            "warning",
            "objective: is val/los, which MLPClassifier does not record.",
        ),
        (
            SPACE,
            {"target": 0.3},
            "warning",
            "target: has no effect, because no objective measures the cost of reaching the target.",
        ),
        (
            SPACE,
            {"objective": ["val/loss", "seconds"]},
            "warning",
            "exclusive: is false, so trials run at the same time and slow each other down",
        ),
        (
            CHOICES,
            {"trials": 1, "points": [{"model.activation": "relu"}, {"model.activation": "tanh"}]},
            "warning",
            "points: has 2 points",
        ),
        (
            "{trainer.max_epochs: {int: [1, 2]}}",
            {"seconds_per_trial": 3},
            "error",
            "space.trainer.max_epochs: has no effect with",
        ),
    ],
)
def test_settings_that_do_not_go_together(
    space: str, told: dict[str, Any], severity: str, said: str, description: Description
) -> None:
    (problem,) = problems(space, description, **told)
    assert problem.severity == severity
    assert str(problem).startswith(said)


def test_virtual_seconds_do_not_depend_on_what_runs_beside(description: Description) -> None:
    args = {"host": "virtual", "workers": 4, "clock": {"gradient_s": 0.1}}
    strategy = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": args}
    config = {"model": "MLPClassifier", "data": "Digits", "trainer": {"strategy": strategy}}
    assert problems(SPACE, description, objective=["val/loss", "seconds"], config=config) == []
    also_real = "{strategy: {values: [ddp, async]}}"
    (problem,) = problems(also_real, description, objective=["val/loss", "seconds"], config=config)
    assert problem.key == "exclusive"
