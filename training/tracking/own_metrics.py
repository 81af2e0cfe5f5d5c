"""Metrics that are not computed from all workers' data together, a worker's own value or the mean of such values: what
marks their figures wherever they stand."""

from collections.abc import Mapping
from typing import Final

from scalebook.training.tracking import names

SIGN: Final = "†"
WORDS: Final = (
    "Not computed from the data of all workers together: the value of worker 0 alone, or the mean of one value per "
    "worker. The log of the run says which."
)


def is_own(tags: Mapping[str, str], metric: str) -> bool:
    """Whether `metric` of the run with these tags, also its best and final value, is not of all workers' data."""
    plain = metric.removeprefix(names.best("")).removeprefix(names.final(""))
    return plain in tags.get(names.TAG_OWN, "").split(", ")


def sign(tags: Mapping[str, str], metric: str) -> str:
    """What stands behind the metric's name or figure: ` †`, or nothing."""
    return f" {SIGN}" if is_own(tags, metric) else ""
