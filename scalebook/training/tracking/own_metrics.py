"""Metrics that one worker alone has logged, of its part of the data: what marks their figures wherever they stand."""

from collections.abc import Mapping
from typing import Final

from scalebook.training.tracking import names

SIGN: Final = "†"
WORDS: Final = "Worker 0 only: the model logs this metric per worker, so the data of other workers are missing."


def is_own(tags: Mapping[str, str], metric: str) -> bool:
    """Whether in the run with these tags `metric`, also its best and final value, is a worker's own."""
    plain = metric.removeprefix(names.best("")).removeprefix(names.final(""))
    return plain in tags.get(names.TAG_OWN, "").split(", ")


def sign(tags: Mapping[str, str], metric: str) -> str:
    """What stands behind the metric's name or figure: ` †`, or nothing."""
    return f" {SIGN}" if is_own(tags, metric) else ""
