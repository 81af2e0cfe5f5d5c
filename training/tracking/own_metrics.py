"""Marks metrics that are not computed from all workers' data together: one worker's own value, or the mean of such
values."""

from collections.abc import Mapping
from typing import Final

from scalebook.training.tracking import names

SIGN: Final = "†"
WORDS: Final = (
    "This is either the value of worker 0 only, or the mean of one value per worker, so it is not computed from the "
    "data of all workers together. The run log says which."
)


def is_own(tags: Mapping[str, str], metric: str) -> bool:
    """Whether `metric` (also as best or final value) of the run with these tags is not computed from all workers'
    data."""
    plain = metric.removeprefix(names.best("")).removeprefix(names.final(""))
    return plain in tags.get(names.TAG_OWN, "").split(", ")


def sign(tags: Mapping[str, str], metric: str) -> str:
    """The mark behind the metric's name or figure: ` †`, or ""."""
    return f" {SIGN}" if is_own(tags, metric) else ""
