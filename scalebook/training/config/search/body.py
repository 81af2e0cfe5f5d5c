"""The keys of a search, as a cell or a file writes them, read one by one; every mistake is kept, none raised."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from scalebook.training.config.classes import few_strangers
from scalebook.training.config.fields import shown
from scalebook.training.config.raw_body import Body, near, number, one_of
from scalebook.training.config.renamed import renewed
from scalebook.training.config.search.keys import (
    ALL,
    DEFAULTS,
    KEYS,
    PRUNERS,
    REMOVED_SAMPLERS,
    SAMPLERS,
    without_defaults,
)
from scalebook.training.config.search.space_body import Read, read_space
from scalebook.training.config.search.types import AMOUNTS, Objective, Scaling, SearchSpec
from scalebook.training.errors import Problem
from scalebook.training.tracking import directions, names

SCHEMES: Final = ("sqlite", "postgresql", "mysql", "mariadb", "journal")


def read_body(
    raw: Mapping[str, Any], base: Mapping[str, Any] | None, default_metric: str | None
) -> tuple[SearchSpec, list[Problem], Read]:
    """The search that `raw` describes, what is wrong with it, and its space as it was read.

    Where something is wrong its default stands in the search. `default_metric` is minimised, or maximised, where no
    objective is told.
    """
    body = Body(raw)
    kept, more = few_strangers(raw, KEYS)
    if more:
        body.wrong("search", f"has {more} more unknown keys", "Remove them.")
    for key in kept:
        if key not in KEYS:
            body.wrong(str(key), "is not a key of a search", near(str(key), KEYS))
    config = _config(body, base)
    space = read_space(raw.get("space"))
    body.problems += space.problems
    objectives = _objectives(body, default_metric, config)
    sampler, seed = _sampler(body)
    spec = SearchSpec(
        config=config,
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


def write_body(spec: SearchSpec) -> dict[str, Any]:
    """The body that reads as `spec`, its config inline; what is at its default is left out, but for what is shown."""
    space = {dimension.name: dimension.body() for dimension in spec.space}
    if spec.rate is not None:
        rate = {"rule": spec.rate.rule, "per": spec.rate.per, "warmup_epochs": spec.rate.warmup_epochs}
        space["learning_rate"] = {**space["learning_rate"], **rate}
    objectives = [_told_objective(objective, spec.config) for objective in spec.objectives]
    seeded = spec.sampler if spec.sampler_seed == 1 else {spec.sampler: {"seed": spec.sampler_seed}}
    body: dict[str, Any] = {
        "preset": spec.preset,
        "config": spec.config,
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


def _config(body: Body, base: Mapping[str, Any] | None) -> dict[str, Any]:
    raw = body.raw
    config = raw.get("config")
    if raw.get("experiment") is not None and config is not None:
        body.wrong("config", "conflicts with `experiment:`", "Remove one of them.")
    elif raw.get("experiment") is not None and not isinstance(raw["experiment"], str):
        body.wrong("experiment", f"is {shown(raw['experiment'])}", "Write the name of an experiment.")
    elif base is None and isinstance(config, str):
        body.wrong("config", f"is {shown(config)}, a path", "Write the config itself here, or `experiment: NAME`.")
    elif base is None and config is not None and not isinstance(config, Mapping):
        body.wrong("config", f"is {shown(config)}, not a mapping", "Write keys such as `model:` and `data:`.")
    elif base is None and config is None and raw.get("experiment") is None:
        body.wrong("experiment", "is missing", "Name the experiment to start from, or write its `config:`.")
    elif base is None and config is None:
        body.wrong("experiment", f"names an unknown experiment {raw['experiment']}", "Write its `config:` instead.")
    if isinstance(config, Mapping):
        own, older = renewed(config)
        body.problems += [replace(problem, key=f"config.{problem.key}") for problem in older]
        return own
    return {} if base is None else dict(base)


def _objectives(body: Body, default: str | None, config: Mapping[str, Any]) -> tuple[Objective, ...]:
    raw = body.raw.get("objective")
    raw = default if raw is None else raw
    if raw is None:
        body.wrong("objective", "is missing", "Name a metric, such as objective: val/loss.")
        return (Objective(names.TRAIN_LOSS, True),)
    items = raw if isinstance(raw, list) else [raw]
    objectives = [objective for objective in (_objective(item, config) for item in items) if objective is not None]
    if len(objectives) != len(items) or not objectives:
        body.wrong(
            "objective",
            f"is {shown(raw)}",
            "Write a metric, seconds, samples or updates; two of them as [val/loss, seconds]; {val/iou: max} for more.",
        )
        return tuple(objectives) or (Objective(names.TRAIN_LOSS, True),)
    if len(objectives) > 2 or len({objective.name for objective in objectives}) < len(objectives):
        body.wrong("objective", f"names {len(objectives)} objectives", "Write one, or two different ones.")
    return tuple(objectives[:2])


def _objective(raw: Any, config: Mapping[str, Any]) -> Objective | None:
    named = directions.named(raw)
    if named is None:
        return None
    name, goal = named
    if goal is None and name in AMOUNTS:
        return Objective(name, True)
    return Objective(name, directions.of_runs(name, goal, (), [config]).lower, goal is not None)


def _told_objective(objective: Objective, config: Mapping[str, Any]) -> Any:
    if not objective.said and _objective(objective.name, config) == objective:
        return objective.name
    return {objective.name: "min" if objective.lower else "max"}


def _target(body: Body, objectives: tuple[Objective, ...]) -> float | None:
    target = body.raw.get("target")
    if target is None:
        return None
    if not number(target):
        body.wrong("target", f"is {shown(target)}", "Write the value of the first objective to reach.")
        return None
    if objectives[0].name in AMOUNTS:
        remedy = f"Name its metric first: objective: [val/loss, {objectives[0].name}]."
        body.wrong("target", f"needs a metric: the first objective is {objectives[0].name}", remedy)
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
        body.wrong("sampler", f"is {sampler}, which no longer exists", f"Write sampler: {REMOVED_SAMPLERS[sampler]}.")
        return "tpe", 1
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        body.wrong("sampler", f"is {shown(sampler)}", one_of(sampler, tuple(SAMPLERS)))
        return "tpe", 1
    seed = settings.get("seed", 1) if isinstance(settings, Mapping) else None
    known = isinstance(settings, Mapping) and set(settings) <= {"seed"}
    if not known or isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        body.wrong("sampler", f"has settings {shown(settings)}", f"Write {sampler}, or {{{sampler}: {{seed: 1}}}}.")
        return str(sampler), 1
    return str(sampler), seed


def _seconds(body: Body) -> float | None:
    seconds = body.above_zero("seconds_per_trial")
    if seconds is not None and seconds != int(seconds):
        body.wrong(
            "seconds_per_trial", f"is {shown(seconds)}", "Write whole seconds; a Trainer's budget knows no parts."
        )
        return None
    return seconds


def _points(body: Body, space: Read) -> tuple[dict[str, Any], ...]:
    raw = body.raw.get("points")
    if raw is None:
        return ()
    if not isinstance(raw, list):
        body.wrong("points", f"is {shown(raw)}", "Write a list, [{batch_size: 64, learning_rate: 0.1}].")
        return ()
    points = []
    known = {dimension.name: dimension for dimension in space.dimensions}
    for place, item in enumerate(raw):
        if not isinstance(item, Mapping) or not item:
            body.wrong(f"points.{place}", f"is {shown(item)}", "Write {NAME: VALUE} for dimensions of the space.")
            continue
        point = {space.canonical.get(str(name), str(name)): value for name, value in item.items()}
        for name, value in point.items():
            key = f"points.{place}.{name}"
            if name not in known:
                if not space.problems:
                    body.wrong(key, "is not a dimension of the space", near(name, tuple(known)))
            elif not known[name].contains(value):
                body.wrong(key, f"is {shown(value)}", f"Write one of the space: {known[name].words()}.")
        points.append(point)
    return tuple(points)


def _storage(body: Body) -> str | None:
    storage = body.text("storage")
    if storage is not None and storage.partition("://")[0].partition("+")[0].partition(":")[0] not in SCHEMES:
        remedy = "Write an address, postgresql://USER@HOST/DATABASE, or remove it for a file in the workspace."
        body.wrong("storage", f"is {shown(storage)}", remedy)
    return storage
