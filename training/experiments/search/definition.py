"""A search: an Optuna study over an experiment's config, as a cell or a file describes it. Nothing here runs anything.

`read_search` and `body_of` are inverses: `read_search(body_of(spec), None, description) == spec`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from scalebook.training.base import ConfigError, Problem
from scalebook.training.experiments.classes import few_strangers
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.identity import DIGITS, base_content
from scalebook.training.experiments.raw_body import Body, near, number, one_of
from scalebook.training.experiments.search.keys import (
    ALL,
    DEFAULTS,
    KEYS,
    PRUNERS,
    REMOVED_SAMPLERS,
    SAMPLERS,
    without_defaults,
)
from scalebook.training.experiments.search.search_checks import check
from scalebook.training.experiments.search.space_body import ReadSpace, read_space
from scalebook.training.experiments.search.types import AMOUNTS, Objective, RateRule, Scaling, SearchSpec
from scalebook.training.tracking import directions, names

SCHEMES: Final = ("sqlite", "postgresql", "mysql", "mariadb", "journal")


def read_body(
    raw: Mapping[str, Any], base: Experiment | None, description: Description
) -> tuple[SearchSpec, list[Problem], ReadSpace]:
    """The search that `raw` describes, what is wrong with it, and its space as it was read.

    Where something is wrong its default stands in the search. If no objective is named, it is the model's main metric.
    """
    body = Body(raw)
    keys, more = few_strangers(raw, KEYS)
    if more:
        body.wrong("unknown-key", "search", f"has {more} unknown keys in addition to those listed", "Remove them.")
    for key in keys:
        if key not in KEYS:
            body.wrong("unknown-key", str(key), "is not a key of a search", near(str(key), KEYS))
    experiment = _experiment(body, base, description)
    model = experiment.model.info
    default_metric = model.metrics[0] if model is not None and model.metrics else None
    space = read_space(raw.get("space"))
    body.problems += space.problems
    objectives = _objectives(body, default_metric, experiment)
    sampler, seed = _sampler(body)
    spec = SearchSpec(
        experiment=experiment,
        space=space.dimensions,
        objectives=objectives,
        target=_target(body, objectives),
        scaling=_scaling(body),
        sampler=sampler,
        sampler_seed=seed,
        pruner=body.word("pruner", tuple(PRUNERS), "none"),
        trials=body.whole_number("trials", 100),
        seeds=body.whole_number("seeds", 1, 100),
        minutes=body.above_zero("minutes"),
        seconds_per_trial=_seconds(body),
        exclusive=body.flag_or("exclusive", ALL),
        failures=body.whole_number("failures", DEFAULTS["failures"]),
        memory_mb=body.whole_number("memory_mb", 0, 1 << 24) or None,
        points=_points(body, space),
        storage=_storage(body),
        preset=body.text("preset"),
        rate=space.rate,
    )
    return spec, body.problems, space


def body_of(spec: SearchSpec) -> dict[str, Any]:
    """The body that reads as `spec`, its config inline; what is at its default is left out, but for what is shown."""
    space = {dimension.name: dimension.body() for dimension in spec.space}
    if spec.rate is not None:
        rate = {"rule": spec.rate.rule, "per": spec.rate.per, "warmup_epochs": spec.rate.warmup_epochs}
        space["learning_rate"] = {**space["learning_rate"], **rate}
    objectives = [_told_objective(objective, spec.experiment) for objective in spec.objectives]
    seeded = spec.sampler if spec.sampler_seed == 1 else {spec.sampler: {"seed": spec.sampler_seed}}
    body: dict[str, Any] = {
        "preset": spec.preset,
        "config": spec.experiment.written,
        "objective": objectives[0] if len(objectives) == 1 else objectives,
        "target": spec.target,
        "scaling": spec.scaling,
        "space": space,
        "sampler": seeded,
        "pruner": spec.pruner,
        "trials": spec.trials,
        "seeds": spec.seeds,
        "minutes": spec.minutes,
        "seconds_per_trial": spec.seconds_per_trial,
        "exclusive": spec.exclusive,
        "failures": spec.failures,
        "memory_mb": spec.memory_mb,
        "points": [dict(point) for point in spec.points],
        "storage": spec.storage,
    }
    return without_defaults(body)


def _experiment(body: Body, base: Experiment | None, description: Description) -> Experiment:
    raw = body.raw
    config = raw.get("config")
    if raw.get("experiment") is not None and config is not None:
        body.wrong("contradiction", "config", "conflicts with `experiment:`", "Remove one of them.")
    elif raw.get("experiment") is not None and not isinstance(raw["experiment"], str):
        body.wrong(
            "wrong-type", "experiment", f"is {quoted_value(raw['experiment'])}", "Use the name of an experiment."
        )
    elif base is None and isinstance(config, str):
        body.wrong(
            "wrong-type",
            "config",
            f"is {quoted_value(config)}, a path",
            "Put the config itself here, or use `experiment: NAME`.",
        )
    elif base is None and config is not None and not isinstance(config, Mapping):
        body.wrong(
            "wrong-type",
            "config",
            f"is {quoted_value(config)}, not a mapping",
            "Use keys such as `model:` and `data:`.",
        )
    elif base is None and config is None and raw.get("experiment") is None:
        body.wrong("missing", "experiment", "is missing", "Set it to the experiment to start from, or set `config:`.")
    elif base is None and config is None:
        body.wrong(
            "unknown-name",
            "experiment",
            f"is {raw['experiment']}, which is not an experiment here",
            "Set `config:` instead.",
        )
    if isinstance(config, Mapping):
        return Experiment(config, description)
    return Experiment({}, description) if base is None else base


def _objectives(body: Body, default: str | None, experiment: Experiment) -> tuple[Objective, ...]:
    raw = body.raw.get("objective")
    raw = default if raw is None else raw
    if raw is None:
        body.wrong("missing", "objective", "is missing", "Set a metric, such as objective: val/loss.")
        return (Objective(names.TRAIN_LOSS, True),)
    items = raw if isinstance(raw, list) else [raw]
    objectives = [objective for objective in (_objective(item, experiment) for item in items) if objective is not None]
    if len(objectives) != len(items) or not objectives:
        body.wrong(
            "unknown-value",
            "objective",
            f"is {quoted_value(raw)}",
            "Use a metric, seconds, samples or updates, or two of these, such as [val/loss, seconds]. If higher "
            "values are better, use {val/iou: max}.",
        )
        return tuple(objectives) or (Objective(names.TRAIN_LOSS, True),)
    if len(objectives) > 2 or len({objective.name for objective in objectives}) < len(objectives):
        body.wrong(
            "wrong-count",
            "objective",
            f"names {len(objectives)} objectives",
            "Use one objective, or two different objectives.",
        )
    return tuple(objectives[:2])


def _objective(raw: Any, experiment: Experiment) -> Objective | None:
    named = directions.read_metric_name(raw)
    if named is None:
        return None
    name, goal = named
    if goal is None and name in AMOUNTS:
        return Objective(name, True)
    return Objective(name, directions.of_runs(name, goal, (), [experiment.callbacks]).lower, goal is not None)


def _told_objective(objective: Objective, experiment: Experiment) -> Any:
    if not objective.said and _objective(objective.name, experiment) == objective:
        return objective.name
    return {objective.name: "min" if objective.lower else "max"}


def _target(body: Body, objectives: tuple[Objective, ...]) -> float | None:
    target = body.raw.get("target")
    if target is None:
        return None
    if not number(target):
        body.wrong(
            "wrong-type", "target", f"is {quoted_value(target)}", "Use the value that the first objective should reach."
        )
        return None
    if objectives[0].name in AMOUNTS:
        fix = f"Put the metric first: objective: [val/loss, {objectives[0].name}]."
        body.wrong(
            "missing",
            "target",
            f"needs a metric as the first objective, but the first objective is {objectives[0].name}",
            fix,
        )
    return float(target)


def _scaling(body: Body) -> Scaling:
    return "weak" if body.word("scaling", get_args(Scaling), "strong") == "weak" else "strong"


def _sampler(body: Body) -> tuple[str, int]:
    sampler = body.raw.get("sampler")
    sampler = "tpe" if sampler is None else sampler
    settings: Any = {}
    if isinstance(sampler, Mapping) and len(sampler) == 1:
        ((sampler, settings),) = sampler.items()
        settings = {} if settings is None else settings
    if isinstance(sampler, str) and sampler in REMOVED_SAMPLERS:
        body.wrong(
            "unknown-value",
            "sampler",
            f"is {sampler}, which no longer exists",
            f"Set sampler: {REMOVED_SAMPLERS[sampler]}.",
        )
        return "tpe", 1
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        body.wrong("unknown-value", "sampler", f"is {quoted_value(sampler)}", one_of(sampler, tuple(SAMPLERS)))
        return "tpe", 1
    seed = settings.get("seed", 1) if isinstance(settings, Mapping) else None
    valid = isinstance(settings, Mapping) and set(settings) <= {"seed"}
    if not valid or isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        body.wrong(
            "wrong-type",
            "sampler",
            f"has settings {quoted_value(settings)}",
            f"Use {sampler}, or {{{sampler}: {{seed: 1}}}}.",
        )
        return str(sampler), 1
    return str(sampler), seed


def _seconds(body: Body) -> float | None:
    seconds = body.above_zero("seconds_per_trial")
    if seconds is not None and seconds != int(seconds):
        body.wrong(
            "out-of-bounds",
            "seconds_per_trial",
            f"is {quoted_value(seconds)}",
            "Use whole seconds: a Trainer's time budget has no fractions.",
        )
        return None
    return seconds


def _points(body: Body, space: ReadSpace) -> tuple[dict[str, Any], ...]:
    raw = body.raw.get("points")
    if raw is None:
        return ()
    if not isinstance(raw, list):
        body.wrong(
            "wrong-type", "points", f"is {quoted_value(raw)}", "Use a list, [{batch_size: 64, learning_rate: 0.1}]."
        )
        return ()
    points = []
    by_name = {dimension.name: dimension for dimension in space.dimensions}
    for place, item in enumerate(raw):
        if not isinstance(item, Mapping) or not item:
            body.wrong(
                "wrong-type",
                f"points.{place}",
                f"is {quoted_value(item)}",
                "Use {NAME: VALUE} for dimensions of the space.",
            )
            continue
        point = {space.canonical.get(str(name), str(name)): value for name, value in item.items()}
        for name, value in point.items():
            key = f"points.{place}.{name}"
            if name not in by_name:
                if not space.problems:
                    body.wrong("unknown-dimension", key, "is not a dimension of the space", near(name, tuple(by_name)))
            elif not by_name[name].contains(value):
                body.wrong(
                    "unknown-value",
                    key,
                    f"is {quoted_value(value)}",
                    f"Use a value from the space: {by_name[name].words()}.",
                )
        points.append(point)
    return tuple(points)


def _storage(body: Body) -> str | None:
    storage = body.text("storage")
    if storage is not None and storage.partition("://")[0].partition("+")[0].partition(":")[0] not in SCHEMES:
        fix = (
            "Use an address, such as postgresql://USER@HOST/DATABASE, or remove the key to use a file in the workspace."
        )
        body.wrong("wrong-type", "storage", f"is {quoted_value(storage)}", fix)
    return storage


__all__ = [  # what the others import from here
    "AMOUNTS",
    "Objective",
    "RateRule",
    "SearchSpec",
    "body_of",
    "identity",
    "read_search",
    "search_problems",
]


def read_search(body: Mapping[str, Any], base: Experiment | None, description: Description) -> SearchSpec:
    """The search that `body` describes. `base` is the experiment that it names, None where it holds a config.

    ConfigError for the first thing that is wrong, with key and remedy; warnings pass.
    """
    spec, problems = _read(body, base, description, None)
    for problem in problems:
        if problem.severity == "error":
            raise ConfigError.of(problem)
    return spec


def search_problems(
    body: Mapping[str, Any], base: Experiment | None, description: Description, cores: int | None = None
) -> list[Problem]:
    """All that is wrong with a search, found without running anything; keys are those of `body`.

    Warnings are settings without effect, combinations that are left out, and, where `cores` is told, workers without a
    core of their own.
    """
    return _read(body, base, description, cores)[1]


def identity(spec: SearchSpec) -> str:
    """12 hex digits of what may not change while a study goes on: base config, space, objectives, what a trial is.

    The same for any order of keys and any way to name the base's classes. Not of the budget: trials, seeds of a point,
    sampler, pruner, minutes, failures, points, storage and exclusive may change. The order of categories matters: a
    study keeps it.
    """
    body = body_of(spec)
    content = {
        "config": base_content(spec.experiment),
        "space": body["space"],
        "objective": [(objective.name, objective.lower) for objective in spec.objectives],
        **{key: body.get(key) for key in ("target", "scaling", "seconds_per_trial", "memory_mb")},
    }
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _read(
    body: Mapping[str, Any], base: Experiment | None, description: Description, cores: int | None
) -> tuple[SearchSpec, list[Problem]]:
    spec, problems, space = read_body(body, base, description)
    above = "config" if isinstance(body.get("config"), Mapping) else "experiment"
    return spec, problems + check(spec, space, cores, above)


def _plain(value: Any) -> Any:
    """16 and 16.0 are one number, as they are to a person."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
