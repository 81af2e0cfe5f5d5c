"""What a search may say: its keys, samplers and pruners, each with the words of forms."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

KEYS: Final = (
    "experiment", "config", "preset", "objective", "target", "scaling", "space", "sampler", "pruner", "trials",
    "seeds", "minutes", "seconds_per_trial", "exclusive", "failures", "memory_mb", "points", "storage",
)  # fmt: skip
"""In the order in which one reads them."""

HELP: Final[Mapping[str, str]] = {
    "experiment": "Experiment of this notebook. The search varies its config; the cell does not change.",
    "config": "Config that the search varies, instead of the config of an experiment. In a search file, this can also "
    "be the path of a config.",
    "preset": "The preset from which the search was created in the form. It has no effect.",
    "objective": "The metric to optimize, or a cost: seconds, samples or updates. Given two, such as `[val/loss, "
    "seconds]`, the search looks for the Pareto front: points that no other point beats in both. `{val/iou: max}` "
    "sets the direction. The default is the main metric of the model.",
    "target": (
        "The metric value to reach. Seconds, samples and updates are then counted until the metric reaches this value."
    ),
    "scaling": "`strong`: the batch size is the total over all workers; more workers share the same batch. `weak`: the "
    "batch size is per worker; more workers make the global batch larger.",
    "space": "The fields to vary, each with its range or its values.",
    "sampler": "Chooses the next point. `{tpe: {seed: 2}}` sets the seed of the sampler.",
    "pruner": "Ends runs early if they are unlikely to be among the best.",
    "trials": "Number of points to try.",
    "seeds": "Number of runs per point, each with the next seed. With three or more seeds, there is an interval.",
    "minutes": "No new trial starts after this time.",
    "seconds_per_trial": "Training time of each run, in whole seconds, instead of the experiment's budget.",
    "exclusive": "Runs one trial at a time, without other runs. This takes longer, but only then can seconds be "
    "compared, because trials that run at the same time slow each other down. With `all`, nothing else "
    "runs on any machine of a cluster.",
    "failures": "Number of failures after which the search stops. Only runs that died count, not runs that diverged "
    "or ran out of memory.",
    "memory_mb": "Memory that each process may use, in MB, in addition to what it uses at the start. A trial that "
    "needs more counts as out of memory.",
    "points": "Points to try first, each as `{batch_size: 64, learning_rate: 0.1}`.",
    "storage": "Address of the study's database, such as `postgresql://USER@HOST/DATABASE`, instead of a file in the "
    "workspace.",
}
"""What each key means."""
KIND_HELP: Final[Mapping[str, str]] = {
    "uniform": "Real numbers between two limits, all equally likely.",
    "log_uniform": "Real numbers between two limits, on a logarithmic scale.",
    "int": "Whole numbers between two limits. `log: true`: on a logarithmic scale; `step`: the distance between two "
    "numbers.",
    "powers_of_two": "1, 2, 4, ... between two limits.",
    "grid": "These numbers, which have an order.",
    "values": "These values, which have no order.",
}
"""What each kind of range means; `points` is how many of its values the sampler `grid` visits."""
HANDLE_HELP: Final[Mapping[str, str]] = {
    "batch_size": "Batch size, global or per worker as set by `scaling`.",
    "learning_rate": "Learning rate. With `rule`, `per` and `warmup_epochs`, as in `lr_scaling`, it follows the batch "
    "size.",
    "strategy": "`single`, `ddp`, a rule of the parameter server (`async`, `bounded`, `sync`, `softsync`), or a "
    "strategy.",
    "workers": "Number of workers.",
}
"""What the dimensions with names of their own vary; any other is the path of a field, such as `model.width`."""

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
    "tpe": MethodChoice("TPE", "Learns from earlier trials which values are good (tree-structured Parzen estimator)."),
    "random": MethodChoice("Random", "Draws every point at random, independently of the others."),
    "grid": MethodChoice("Grid", "Visits every combination once, then ends."),
    "qmc": MethodChoice("Quasi-Monte Carlo", "Spreads the points evenly over the whole space."),
    "gp": MethodChoice(
        "Gaussian process",
        "Models the objective as a smooth function and tries points where it may improve most; for few, costly trials.",
    ),
}
REMOVED_SAMPLERS: Final = {"cma-es": "gp"}
"""What an earlier version called by another name, and the sampler that takes its place."""
PRUNERS: Final = {
    "none": MethodChoice("None", "Lets every run finish."),
    "median": MethodChoice("Median", "Ends runs that are worse than the median after the same number of samples."),
    "asha": MethodChoice(
        "Successive halving (ASHA)", "At certain numbers of samples (rungs), continues only the best third of the runs."
    ),
    "hyperband": MethodChoice("Hyperband", "Runs several successive halvings in parallel, from aggressive to patient."),
    "wilcoxon": MethodChoice(
        "Wilcoxon, over seeds", "Skips the remaining seeds of a point that is clearly worse than the best point."
    ),
}


def without_defaults(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without keys that are at their default."""
    return {key: value for key, value in body.items() if key not in DEFAULTS or value != DEFAULTS[key]}
