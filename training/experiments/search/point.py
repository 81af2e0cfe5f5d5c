"""From a point of a search to the config that its trial runs.

What the four handles mean in a config (batch size, learning rate, strategy, workers) is defined only here.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import RULES
from scalebook.training.experiments.classes import mapping, positive
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.lr_scaling import KEY as LR_SCALING
from scalebook.training.experiments.paths import PathTarget, place, put
from scalebook.training.experiments.raw_body import number
from scalebook.training.experiments.search.space import HANDLES
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.experiments.strategies import AsyncPSSettings, SingleProcess

SINGLE: Final = ("single", "auto")
STRATEGIES: Final = ("single", "ddp", *RULES)
"""Words for a strategy: in one process; Lightning's DDP; a parameter server by one of its rules."""

RATES: Final = ("optimizer.lr", "model.learning_rate", "model.lr")
"""Where a learning rate may stand, in the order in which `Experiment.rate` looks for it."""

OTHER_BUDGETS: Final = ("max_epochs", "max_steps", "min_epochs", "min_steps")
"""Of a Trainer; the first one that is reached would end a run."""


def resolve(spec: SearchSpec, point: Mapping[str, Any]) -> Experiment:
    """The experiment of the trial at `point`; what the point leaves out stays as the base has it.

    `scaling: strong`: the point's batch size is what all workers together compute at a time, under DDP the samples of
    one update, under a parameter server batch per worker x workers, whatever its rule makes of their gradients; the
    config gets the share of each. `weak`: it is each worker's. Without a batch size in the point the base's is kept in
    that sense. One process has one worker, whatever the point says.

    ConfigError, its key the dimension, where there can be no such trial.
    """
    for name in point:
        if not spec.has(name):
            names = ", ".join(dimension.name for dimension in spec.space)
            raise ConfigError(name, "is not a dimension of this search", f"Known: {names}.", "unknown-key")
    for name in ("batch_size", "workers"):  # the only ones that are counted with
        value = point.get(name, 1)
        if not number(value) or value != int(value) or value < 1:
            raise ConfigError(
                name,
                f"is {quoted_value(value)}",
                f"Use a value from the space: {spec.dimension(name).words()}.",
                "out-of-bounds",
            )
    base = trial = spec.experiment
    if "strategy" in point:
        trial = put_strategy(trial, point["strategy"])
    trial = _with_fields(spec, trial, point)
    workers = _workers(trial, point, base.strategy.workers)
    if "workers" in point or workers != trial.strategy.workers:
        trial = put_workers(trial, workers)
    if "batch_size" in point or workers != base.strategy.workers:
        size = point.get("batch_size", base.batch.together if spec.scaling == "strong" else base.batch.per_worker)
        if size is not None:
            batch = _share(size, trial.strategy.batches) if spec.scaling == "strong" else size
            trial = put(trial, batch_place(trial), batch)
    if "learning_rate" in point:
        trial = put(trial, rate_place(trial), point["learning_rate"])
    config = dict(trial.written)
    if spec.rate is not None:
        rate = spec.rate
        config[LR_SCALING] = {"rule": rate.rule, "per": rate.per, "warmup_epochs": rate.warmup_epochs}
    if spec.seconds_per_trial is not None:
        config["trainer"] = _with_time(config.get("trainer") or {}, int(spec.seconds_per_trial))
    return base.with_config(config)


def canonical(spec: SearchSpec, point: Mapping[str, Any]) -> dict[str, Any]:
    """The same for all points that run alike: one process has one worker, so `workers` is then the lowest."""
    done = dict(point)
    if "workers" in done and is_single(done.get("strategy")):
        done["workers"] = spec.dimension("workers").ends()[0]
    return done


def grid_points(spec: SearchSpec) -> Iterator[dict[str, Any]]:
    """All points of the grid, none that runs the same as an earlier one. Ranges of real numbers must have `points`."""
    names = [dimension.name for dimension in spec.space]
    for values in itertools.product(*(dimension.grid() for dimension in spec.space)):
        point = dict(zip(names, values, strict=True))
        if canonical(spec, point) == point:
            yield point


def summary(spec: SearchSpec, point: Mapping[str, Any]) -> str:
    """`batch 64, rate 0.1, async × 2`: what tells the trials of a search apart, in few words."""
    labels = {
        dimension.name: dimension.label(point[dimension.name]) for dimension in spec.space if dimension.name in point
    }
    words = []
    if "batch_size" in labels:
        words.append(f"batch {labels.pop('batch_size')}")
    if "learning_rate" in labels:
        words.append(f"rate {labels.pop('learning_rate')}")
    strategy, workers = labels.pop("strategy", None), labels.pop("workers", None)
    if strategy is not None:
        alone = workers is None or is_single(point["strategy"])
        words.append(strategy if alone else f"{strategy} × {workers}")
    elif workers is not None:
        words.append(f"{workers} worker{'' if workers == '1' else 's'}")
    last = [name.rsplit(".", 1)[-1] for name in labels]
    for name, short, label in zip(labels, last, labels.values(), strict=True):
        words.append(f"{short.replace('_', ' ') if last.count(short) == 1 else name} {label}")
    return ", ".join(words)


def _with_fields(spec: SearchSpec, trial: Experiment, point: Mapping[str, Any]) -> Experiment:
    """The fields named by paths; classes before what stands below them. A field that another class has is left out."""
    for name in sorted((name for name in point if name not in HANDLES), key=lambda name: name.count(".")):
        try:
            where = place(name, trial)
        except ConfigError:
            if not depends(name, spec):
                raise
            continue
        trial = put(trial, where, point[name])
    return trial


def depends(name: str, spec: SearchSpec) -> bool:
    """Whether another dimension chooses a class above the field `name`, so that it may be missing at some points."""
    above = ["trainer.strategy" if dimension.name == "strategy" else dimension.name for dimension in spec.space]
    return any(name.startswith(f"{class_key}.") for class_key in above)


def _workers(trial: Experiment, point: Mapping[str, Any], before: int) -> int:
    single = is_single(point.get("strategy", point.get("trainer.strategy")))
    workers: int = 1 if single else point.get("workers", before)
    if "workers" not in point and not single and "strategy" not in point and "trainer.strategy" not in point:
        return trial.strategy.workers  # as the base, or a field of it, says
    return workers


def _share(batch: int, workers: int) -> int:
    if batch % workers:
        raise ConfigError(
            "batch_size",
            f"{batch} cannot be split over {workers} workers",
            f"Use a multiple of {workers}, or scaling: weak.",
            "contradiction",
        )
    return batch // workers


def _with_time(trainer: Mapping[str, Any], seconds: int) -> dict[str, Any]:
    """A budget of time instead of any other."""
    rest = {key: value for key, value in trainer.items() if key not in OTHER_BUDGETS}
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return {**rest, "max_time": f"{days:02d}:{hours:02d}:{minutes:02d}:{seconds:02d}"}


# --- the handles ------------------------------------------------------------------------------------------------------


def is_single(value: Any) -> bool:
    """Whether this strategy trains in one process, however many workers a point says."""
    return isinstance(value, str) and value in SINGLE


def batch_place(experiment: Experiment) -> PathTarget:
    """Where the batch size stands; ConfigError where the data set has none."""
    try:
        return place("data.batch_size", experiment)
    except ConfigError as error:
        name = experiment.data.last_name or "The data set"
        what = f"cannot be set, because {name} has no argument batch_size"
        raise ConfigError("batch_size", what, "Choose another field.", "contradiction") from error


def rate_place(experiment: Experiment) -> PathTarget:
    """Where the learning rate stands: of the optimizer, or of a model that has its own."""
    model = experiment.model.info
    own = model is not None and model.own_optimizer
    for path in RATES:
        if not (own and path.startswith("optimizer.")):
            with contextlib.suppress(ConfigError):
                return place(path, experiment)
    who = f"{model.name} has its own optimizer and no" if model and own else "the optimizer has no"
    raise ConfigError(
        "learning_rate",
        f"cannot be set, because {who} argument for the learning rate",
        "Use the full path of the field instead.",
        "contradiction",
    )


def put_strategy(experiment: Experiment, value: Any) -> Experiment:
    """The experiment under another strategy: one of the words, or whatever a config may say itself.

    Settings of a parameter server stay when only its rule changes.
    """
    where = PathTarget(("trainer", "strategy"), None, "strategies")
    if is_single(value):
        alone = put(experiment, where, "auto").written
        rest = {key: value for key, value in alone["trainer"].items() if key != "num_nodes"}
        return experiment.with_config({**alone, "trainer": {**rest, "devices": 1}})
    if isinstance(value, str) and value in RULES:
        now, word = experiment.strategy, value
        value = {"class_path": "AsyncPS"}
        if not (isinstance(now, AsyncPSSettings) and now.rule is not None and now.rule.word == word):
            value["init_args"] = {"rule": word}
    return put(experiment, where, value)


def put_workers(experiment: Experiment, workers: int) -> Experiment:
    """The experiment with so many workers, all on the devices that it has: one process becomes DDP where they are
    several.

    ConfigError if its nodes cannot have as many each.
    """
    trainer, now = dict(mapping(experiment.written.get("trainer"))), experiment.strategy
    if workers % now.nodes:
        what = f"{workers} cannot be split over {now.nodes} nodes"
        raise ConfigError(
            "workers", what, f"Use multiples of {now.nodes}, or another trainer.num_nodes.", "contradiction"
        )
    workers //= now.nodes
    if now.info is not None and any(field.name == "workers" for field in now.info.fields):
        devices = trainer.get("devices")
        if trainer.get("accelerator") == "cpu":
            trainer.pop("devices", None)
        elif (positive(devices) or 0) > workers:
            trainer["devices"] = workers
        where = PathTarget(("trainer", "strategy", "workers"), None)
        return put(experiment.with_config({**experiment.written, "trainer": trainer}), where, workers)
    if workers > 1 and isinstance(now, SingleProcess):
        trainer["strategy"] = "ddp"
    trainer["devices"] = workers
    return experiment.with_config({**experiment.written, "trainer": trainer})
