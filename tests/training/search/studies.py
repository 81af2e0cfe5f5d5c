"""Searches without training: a space, objectives, and studies over them."""

import math
from pathlib import Path
from typing import Any

from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective, SearchSpec
from scalebook.training.search.study.study import AskedTrial, Study
from tests.training.experiments.searches import NO_CLASSES

LOSS = Objective("val/loss", lower=True)
ACCURACY = Objective("val/accuracy", lower=False)
SECONDS = Objective("seconds", lower=True)

BATCH = Dimension("batch_size", "powers_of_two", 16, 1024)
RATE = Dimension("learning_rate", "log_uniform", 0.001, 1.0)
STRATEGY = Dimension("strategy", "values", choices=("single", "ddp", {"class_path": "a.B", "init_args": {"c": 1}}))
WORKERS = Dimension("workers", "grid", choices=(1, 2, 4))


def search(*space: Dimension, objectives: tuple[Objective, ...] = (LOSS,), **more: Any) -> SearchSpec:
    """Of `space`, else batch x rate x strategy."""
    return SearchSpec(Experiment({}, NO_CLASSES), space or (BATCH, RATE, STRATEGY), objectives, **more)


def journal(folder: Path) -> str:
    return f"journal:{folder / 'journal.log'}"


def loss(point: dict[str, Any]) -> float:
    """Lowest, 0, at batch 128 and rate 0.1."""
    off_batch = math.log2(point.get("batch_size", 128) / 128)
    off_rate = math.log10(point.get("learning_rate", 0.1) / 0.1)
    return float(0.02 * off_batch**2 + off_rate**2)


def run(study: Study, trials: int) -> list[AskedTrial]:
    """Ask, train at once, tell."""
    asked = []
    for _ in range(trials):
        asked.append(study.ask())
        study.finish(asked[-1].number, [loss(asked[-1].point)] * len(study.spec.objectives))
    return asked
