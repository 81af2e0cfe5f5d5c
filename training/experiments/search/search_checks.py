"""What is wrong with a search beyond its own keys: against the base config, and dimension against dimension."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem
from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments.classes import suggestion
from scalebook.training.experiments.description import Description, Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import check_value, expected, quoted_value
from scalebook.training.experiments.paths import PathTarget, fields_by_path, place, put
from scalebook.training.experiments.search.point import (
    STRATEGIES,
    batch_place,
    depends,
    is_single,
    put_strategy,
    rate_place,
    resolve,
    summary,
)
from scalebook.training.experiments.search.search_settings import settings_problems
from scalebook.training.experiments.search.space import HANDLES, RANGES, Dimension
from scalebook.training.experiments.search.space_body import ReadSpace
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.experiments.validation import check_class, validate

SHOWN: Final = 3
PERIOD: Final = 1024
"""Remainders of evenly spaced numbers repeat after as many of them as there are workers, 1024 at most."""


def candidates(dimension: Dimension) -> list[int]:
    """The whole numbers that a dimension may take; of a wide range the first `PERIOD` and the last."""
    if dimension.kind == "int":
        first = range(int(dimension.low), int(dimension.high) + 1, dimension.step)
        return [*first[:PERIOD], *first[PERIOD:][-1:]]
    return [int(value) for value in dimension.grid() if isinstance(value, int) and not isinstance(value, bool)]


def sharing_problems(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """An error for batches that some number of workers does not divide; none under weak scaling."""
    strategy, own_batch = spec.experiment.strategy, spec.experiment.batch.together
    if spec.scaling == "weak" or (own_batch is None and not spec.has("batch_size")):
        return []
    counts = candidates(spec.dimension("workers")) if spec.has("workers") else [strategy.workers]
    strategies = spec.dimension("strategy").choices if spec.has("strategy") else ()
    if strategies and all(is_single(choice) for choice in strategies):
        counts = [1]
    group = strategy.workers // strategy.batches  # of workers that share a batch
    counts = [max(1, count // group) for count in counts]
    common = math.lcm(*counts)
    if not spec.has("batch_size"):
        odd = [count for count in counts if own_batch is not None and own_batch % count]
        if not odd:
            return []
        shared = f"cannot split the experiment's global batch of {own_batch}"
        message = f"{shared} equally among {' or '.join(str(count) for count in odd[:SHOWN])} workers"
        fix = f"Use a batch size in the experiment that is a multiple of {common}, or set scaling: weak."
        return [Problem("contradiction", space.key("workers"), message, fix)]
    batch = spec.dimension("batch_size")
    every = candidates(batch)
    odd_for = ((by, [batch for batch in every if batch % by]) for by in counts)
    workers, batches = next(((by, odd) for by, odd in odd_for if odd), (1, []))
    if not batches:
        return []
    named = ", ".join(str(batch) for batch in batches[:SHOWN]) + (" and more" if len(batches) > SHOWN else "")
    message = f"has global batches that {workers} workers cannot split equally: {named}"
    return [Problem("contradiction", space.key("batch_size"), message, _fix(batch, common))]


def _fix(batch: Dimension, common: int) -> str:
    weak = "or scaling: weak, where each worker has the whole batch"
    low, high = -(-batch.low // common) * common, batch.high // common * common
    if batch.kind == "powers_of_two" and common & (common - 1) == 0 and common <= batch.high:
        return f"Set powers_of_two: [{max(common, int(batch.low))}, {int(batch.high)}], {weak}."
    if batch.kind in ("int", "powers_of_two") and low <= high:
        return f"Set int: [{int(low)}, {int(high)}] with step: {common}, {weak}."
    return f"Use batch sizes that are multiples of {common}, {weak}."


MOST_VARIANTS: Final = 32
WORKERS: Final = Field("workers", "int", required=True, minimum=1, maximum=1024)
SAME_FIELD: Final = {
    "batch_size": ("data.batch_size",),
    "strategy": ("trainer.strategy",),
    "workers": ("trainer.devices", "trainer.strategy.workers"),
}
"""The paths that a handle stands for; those of a learning rate depend on the config."""


def clashes(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """Dimensions that set the same field."""
    same = {**SAME_FIELD, "learning_rate": (_rate(spec),)}
    problems = [
        Problem("contradiction", space.key(path), f"is already set by {handle}", "Remove one of them.")
        for handle, paths in same.items()
        for path in paths
        if spec.has(handle) and spec.has(path)
    ]
    scaled = [
        dimension.name for dimension in spec.space if dimension.name.startswith("lr_scaling.") and spec.rate is not None
    ]
    said = "is already set by learning_rate"
    return problems + [Problem("contradiction", space.key(name), said, "Remove one of them.") for name in scaled]


def _rate(spec: SearchSpec) -> str:
    try:
        return ".".join(rate_place(spec.experiment).parts)
    except ConfigError:
        return ""


def dimension_problems(dimension: Dimension, spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """Errors and warnings, at the key of the dimension."""
    key = space.key(dimension.name)
    try:
        if dimension.name == "strategy":
            return _strategies(key, dimension, spec.experiment.description)
        if dimension.name == "workers":
            return _elastic(key, spec) or _values(key, dimension, WORKERS)
        if dimension.name == "batch_size":
            return _values(key, dimension, batch_place(spec.experiment).field)
        if dimension.name == "learning_rate":
            return _rates(key, dimension, rate_place(spec.experiment).field)
        return _path(key, dimension, spec)
    except ConfigError as error:
        return [error.problem.moved_to(key)]


def _elastic(key: str, spec: SearchSpec) -> list[Problem]:
    if spec.experiment.strategy.least is None:
        return []
    why = "needs a fixed number of workers, but the base config has {min, max}"
    return [Problem("missing", key, why, "Use a number in the base config, or remove this dimension.")]


def _strategies(key: str, dimension: Dimension, description: Description) -> list[Problem]:
    if dimension.kind != "values":
        return [Problem("wrong-type", key, "is a range", f"Set values: [{', '.join(STRATEGIES)}] or some of them.")]
    for value in dimension.choices:
        if isinstance(value, str) and value in STRATEGIES:
            continue
        for problem in check_class("trainer.strategy", value, "strategies", description):
            fix = suggestion(value, STRATEGIES) if isinstance(value, str) else problem.fix
            return [replace(problem.moved_to(key, WRONG), fix=fix)]
    return []


def _rates(key: str, dimension: Dimension, field: Field | None) -> list[Problem]:
    if any(isinstance(value, int | float) and value <= 0 for value in dimension.ends()):
        return [
            Problem(
                "out-of-bounds",
                key,
                f"has a learning rate of {quoted_value(dimension.ends()[0])}",
                "Use rates above 0.",
            )
        ]
    return _values(key, dimension, field)


def _path(key: str, dimension: Dimension, spec: SearchSpec) -> list[Problem]:
    if dimension.name == "seed_everything":
        return [
            Problem(
                "not-searchable",
                key,
                "is not a field to search over",
                "To run each point with several seeds, set seeds: 3.",
            )
        ]
    if "." not in dimension.name and dimension.name not in ("threads", "model", "data", "optimizer", "lr_scheduler"):
        names = [*HANDLES, *(path for path, _ in fields_by_path(spec.experiment))]
        return [Problem("unknown-key", key, "is not a field of this config", suggestion(dimension.name, names))]
    model = spec.experiment.model.info
    if dimension.name.split(".")[0] in ("optimizer", "lr_scheduler") and model is not None and model.own_optimizer:
        return [
            Problem(
                "no-effect", key, f"has no effect, because {model.name} has its own configure_optimizers", "Remove it."
            )
        ]
    if spec.seconds_per_trial is not None and dimension.name in ("trainer.max_epochs", "trainer.max_steps"):
        return [Problem("no-effect", key, "has no effect with seconds_per_trial", "Remove one of them.")]
    places: list[PathTarget] = []
    missing: list[tuple[str, ConfigError]] = []
    for words, experiment in _variants(dimension, spec):
        try:
            places.append(place(dimension.name, experiment))
        except ConfigError as error:
            missing.append((words, error))
    if not places:
        raise missing[0][1]
    problems = (
        _classes(key, dimension, places[0], spec.experiment.description)
        if places[0].group
        else _values(key, dimension, places[0].field)
    )
    if missing and not problems:
        words = ", ".join(dict.fromkeys(words_ for words_, _ in missing))
        problems.append(
            Problem("no-effect", key, f"has no effect with {words}", "You do not need to change anything.", "warning")
        )
    return problems


def _variants(dimension: Dimension, spec: SearchSpec) -> Iterable[tuple[str, Experiment]]:
    """The base under each combination of the classes that dimensions above `dimension` choose, with those in words."""
    above = [other for other in spec.space if _above(other.name, dimension.name)]
    if not above:
        return [("", spec.experiment)]
    variants = []
    for values in itertools.islice(itertools.product(*(other.ends() for other in above)), MOST_VARIANTS):
        variant = spec.experiment
        for other, value in sorted(zip(above, values, strict=True), key=lambda pair: pair[0].name.count(".")):
            try:
                if other.name == "strategy":
                    variant = put_strategy(variant, value)
                else:
                    variant = put(variant, place(other.name, variant), value)
            except ConfigError:
                continue  # said of the other dimension
        words = " and ".join(other.label(value) for other, value in zip(above, values, strict=True))
        variants.append((words, variant))
    return variants


def _above(name: str, path: str) -> bool:
    return path.startswith(f"{'trainer.strategy' if name == 'strategy' else name}.")


def _classes(key: str, dimension: Dimension, where: PathTarget, description: Description) -> list[Problem]:
    assert where.group is not None
    if dimension.kind != "values":
        return [Problem("wrong-type", key, "is a range, but a class is needed", "Set values: [NAME, NAME].")]
    problems = [
        problem
        for value in dimension.choices
        for problem in check_class(dimension.name, value, where.group, description)
    ]
    return [problem.moved_to(key, WRONG) for problem in problems[:1]]


def _values(key: str, dimension: Dimension, field: Field | None) -> list[Problem]:
    """The first value at an end of the range, or in the list, that the field does not take."""
    assert field is not None
    if field.type == "int" and dimension.kind in ("uniform", "log_uniform"):
        log = ", log: true" if dimension.kind == "log_uniform" else ""
        written = f"{{int: [{dimension.low:.0f}, {dimension.high:.0f}]{log}}}"
        return [
            Problem("wrong-type", key, "is a range of real numbers, but whole numbers are needed", f"Use {written}.")
        ]
    if field.type not in ("int", "float", "json") and dimension.kind in RANGES:
        values = yaml_flow.flow([True, False] if field.type == "bool" else field.choices or ["..."])
        return [
            Problem(
                "wrong-type", key, f"is a range of numbers, but {expected(field)} is needed", f"Set values: {values}."
            )
        ]
    for value in dimension.choices or dimension.ends():
        if problem := check_value(key, value, field):
            return [problem.moved_to(key, WRONG)]
    return []


WRONG: Final = "contains an invalid value: "
MOST_POINTS: Final = 200
"""Points tried against validation, about 1 ms each."""
NEEDS: Final = {"batch_size": ("data",), "learning_rate": ("model", "optimizer")}
"""Handles, and what in the base says what they mean."""


def check(spec: SearchSpec, space: ReadSpace, cores: int | None, above: str) -> list[Problem]:
    """Problems of a search that was read. `above` is the key of its base: `config` or `experiment`."""
    problems = settings_problems(spec, space)
    if not spec.experiment.written:
        return problems
    base = _base(spec, above)
    problems = base + problems + clashes(spec, space)
    unknown = _unknown_classes(spec)
    for dimension in spec.space:
        if not any(dimension.name.startswith(key) or key in NEEDS.get(dimension.name, ()) for key in unknown):
            problems += dimension_problems(dimension, spec, space)
    if any(problem.severity == "error" for problem in problems):
        return problems
    problems += sharing_problems(spec, space)
    if all(problem.severity == "warning" for problem in problems):
        problems += _impossible(spec, space)
    return problems + _left_out(spec, space) + (_crowded(spec, space, cores, above) if cores else [])


def _base(spec: SearchSpec, above: str) -> list[Problem]:
    problems = validate(spec.experiment)
    if above == "config":
        return [problem.moved_to(f"config.{problem.key}") for problem in problems]
    wrong = [problem for problem in problems if problem.severity == "error"]
    return [Problem("wrong-experiment", "experiment", f"has a mistake: {wrong[0]}", "")] if wrong else []


def _unknown_classes(spec: SearchSpec) -> list[str]:
    """Keys of the base that name no known class, which is said already; whatever stands below them is not looked at."""
    base = spec.experiment
    return [
        key
        for key, configured in base.classes.items()
        if configured.info is None and (base.written.get(key) is not None or key in ("model", "data"))
    ]


def _impossible(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """Points at the ends of the space, and of each two dimensions of which one chooses a class, that cannot run."""
    by_message: dict[tuple[str, str], Problem] = {}
    always = [dimension.name for dimension in spec.space if _decides(dimension, spec)]
    for names, point in itertools.islice(extremes(spec), MOST_POINTS):
        try:
            problems = validate(resolve(spec, point))
        except ConfigError as error:
            problems = [error.problem]
        for problem in problems:
            if problem.severity == "error":
                which = summary(spec, {name: point[name] for name in (*always, *names)})
                at_end = problem.moved_to(space.key(names[-1]), f"{which} cannot run: {problem.key} ")
                by_message.setdefault((problem.key, problem.message), at_end)
    return list(by_message.values())


def extremes(spec: SearchSpec) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Points, each with the dimensions that are at an end on purpose."""
    first = {dimension.name: dimension.ends()[0] for dimension in spec.space}
    for dimension in spec.space:
        for value in dimension.ends():
            yield (dimension.name,), {**first, dimension.name: value}
    for dimension, other in itertools.combinations(spec.space, 2):
        if _decides(dimension, spec) or _decides(other, spec):
            for value, another in itertools.product(dimension.ends(), other.ends()):
                yield (dimension.name, other.name), {**first, dimension.name: value, other.name: another}


def _decides(dimension: Dimension, spec: SearchSpec) -> bool:
    """Whether what is possible elsewhere may hang on its value."""
    return dimension.name in ("strategy", "workers") or depends(dimension.name, spec)


def _left_out(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """One process beside numbers of workers: runs as one worker, once."""
    if not (spec.has("strategy") and spec.has("workers")):
        return []
    single = [choice for choice in spec.dimension("strategy").choices if is_single(choice)]
    workers = candidates(spec.dimension("workers"))
    more = [f"{single[0]} × {worker}" for worker in workers if worker > 1] if single else []
    if not more or len(workers) == 1:
        return []
    named = ", ".join(more[:4]) + (" and more" if len(more) > 4 else "")
    message = f"skips {named}, because {single[0]} always has one worker"
    return [Problem("crowded", space.key("workers"), message, "You do not need to change anything.", "warning")]


def _crowded(spec: SearchSpec, space: ReadSpace, cores: int, above: str) -> list[Problem]:
    base = spec.experiment
    threads = max(candidates(spec.dimension("threads"))) if spec.has("threads") else base.threads
    workers = max(candidates(spec.dimension("workers"))) if spec.has("workers") else base.strategy.workers
    if spec.has("strategy") and all(is_single(choice) for choice in spec.dimension("strategy").choices):
        workers = 1
    if workers * threads <= cores:
        return []
    each = f"{threads} threads" if threads > 1 else "1 thread"
    message = f"is more than this machine has, because {workers} workers with {each} each would share {cores} cores"
    fix = "The measured times and staleness would reflect an overloaded machine. To measure speed, use fewer."
    key = space.key("workers") if spec.has("workers") else above
    return [Problem("crowded", key, message, fix, "warning")]
