"""A run's best and final values."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightning.pytorch import Trainer
from torch import Tensor

from scalebook.training.tracking import Goal, directions, names


class MetricSummary:
    """The best and the last value of each metric that was logged while validating; NaN is never best."""

    def __init__(self, modes: Mapping[str, Goal] | None = None) -> None:
        """`modes`: which direction is better, if the config says it."""
        self.best: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.directions: dict[str, Goal] = dict(modes or {})
        """Which direction is better, if the config or torchmetrics say it."""

    def validated(
        self, metrics: Mapping[str, Tensor], of_validation: Iterable[tuple[str, Goal | None]]
    ) -> dict[str, float]:
        """Add the metrics of a validation that has just ended, as `logged` names them; returns the new best values."""
        news: dict[str, float] = {}
        for metric, goal in of_validation:
            tensor = metrics.get(metric)
            if tensor is None or tensor.numel() != 1:
                continue
            if goal is not None:
                self.directions.setdefault(metric, goal)
            value = float(tensor)
            self.last[metric] = value
            before = self.best.get(metric, math.nan)
            choose = min if directions.direction(metric, recorded=self.directions).lower else max
            if not math.isnan(value) and (math.isnan(before) or choose(value, before) != before):
                self.best[metric] = news[names.best(metric)] = value
        return news

    def points(self) -> dict[str, float]:
        """`best/...` of every metric; and `final/...` of those that have no best value, because all were NaN."""
        best = {names.best(metric): value for metric, value in self.best.items()}
        return best | {names.final(metric): value for metric, value in self.last.items() if metric not in self.best}

    def finals(self) -> dict[str, float]:
        """`final/...` of every metric."""
        return {names.final(metric): value for metric, value in self.last.items()}


def logged(trainer: Trainer) -> Iterator[tuple[str, Goal | None]]:
    """What the loop that has just ended has logged for its epoch, by the names in `callback_metrics`, each with
    torchmetrics' direction, if known."""
    results: Any = trainer._results  # of the loop at work; Lightning tells nowhere else which metric is of which loop
    for item in results.values() if results is not None else ():
        if item.meta.on_epoch and not item.has_reset:
            higher = None if item.is_tensor else getattr(item.value, "higher_is_better", None)
            goal: Goal | None = None if higher is None else "max" if higher else "min"
            yield results._forked_name(item, on_step=False)[0], goal
