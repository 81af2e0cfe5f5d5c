"""What a search may say: its keys, samplers and pruners, each with the words of forms."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

KEYS: Final = (
    "experiment", "config", "preset", "objective", "target", "scaling", "space", "sampler", "pruner", "trials",
    "seeds", "minutes", "seconds_per_trial", "exclusive", "failures", "memory_mb", "points", "storage",
)  # fmt: skip
"""In the order in which one reads them."""

ALL: Final = "all"
"""As the value of `exclusive`: each trial has all machines for itself."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "preset": None,
    "target": None,
    "minutes": None,
    "seconds_per_trial": None,
    "exclusive": False,
    "failures": 10,
    "memory_mb": None,
    "points": [],
    "storage": None,
}
"""Defaults: a key is left out while it has this value."""


class MethodChoice(NamedTuple):
    """`text` says in a sentence what it does."""

    title: str
    text: str


SAMPLERS: Final = {
    "tpe": MethodChoice("TPE", "Learns from earlier trials where good values lie (tree-structured Parzen estimator)."),
    "random": MethodChoice("Random", "Draws every point at random, independently of the others."),
    "grid": MethodChoice("Grid", "Visits every combination once, then ends."),
    "qmc": MethodChoice("Quasi-Monte Carlo", "Spreads the points evenly over the whole space."),
    "gp": MethodChoice(
        "Gaussian process",
        "Models the objective as a smooth function and goes where it may improve most: for few, costly trials.",
    ),
}
REMOVED_SAMPLERS: Final = {"cma-es": "gp"}
"""What an earlier version called by another name, and the sampler that takes its place."""
PRUNERS: Final = {
    "none": MethodChoice("None", "Runs every run to its end."),
    "median": MethodChoice("Median", "Ends runs that are worse than the median after the same number of samples."),
    "asha": MethodChoice(
        "Successive halving (ASHA)", "Continues the best third at each rung; rungs are numbers of samples."
    ),
    "hyperband": MethodChoice(
        "Hyperband", "Runs several successive halvings side by side, from aggressive to patient."
    ),
    "wilcoxon": MethodChoice(
        "Wilcoxon, over seeds", "Skips further seeds of a point that is clearly worse than the best."
    ),
}


def without_defaults(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without keys that are at their default."""
    return {key: value for key, value in body.items() if key not in DEFAULTS or value != DEFAULTS[key]}
