"""A run's best and final values."""

import math
from collections.abc import Mapping

from torch import Tensor

from scalebook.training.tracking import names

VALIDATION = "val/"


class MetricSummary:
    """The best and the last value of each validation metric; NaN is never best."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self.last: dict[str, float] = {}

    def validated(self, metrics: Mapping[str, Tensor]) -> None:
        """Take the metrics of a validation that has just ended; those of training among them are passed over."""
        for metric, tensor in metrics.items():
            if not metric.startswith(VALIDATION) or tensor.numel() != 1:
                continue
            value = float(tensor)
            self.last[metric] = value
            before = self.best.get(metric, math.nan)
            choose = min if names.lower_is_better(metric) else max
            if not math.isnan(value):
                self.best[metric] = value if math.isnan(before) else choose(value, before)

    def points(self) -> dict[str, float]:
        """`best/...` and `final/...` of every metric."""
        best = {names.best(metric): value for metric, value in self.best.items()}
        return best | {names.final(metric): value for metric, value in self.last.items()}
