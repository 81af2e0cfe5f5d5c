"""What is wrong with one dimension of a search: no such field, or values that the field does not take."""

import itertools
from collections.abc import Iterable
from typing import Any, Final

from scalebook.training.config.classes import named, suggestion
from scalebook.training.config.description import Description, Field
from scalebook.training.config.fields import check_value, expected, shown
from scalebook.training.config.paths import PathTarget, fields, place, put
from scalebook.training.config.search.point import STRATEGIES, batch_place, put_strategy, rate_place
from scalebook.training.config.search.space import HANDLES, RANGES, Dimension
from scalebook.training.config.search.space_body import Read
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.config.validate import check_class
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files.flow import flow

MOST_VARIANTS: Final = 32
WORKERS: Final = Field("workers", "int", required=True, minimum=1, maximum=1024)
SAME_FIELD: Final = {
    "batch_size": ("data.batch_size",),
    "strategy": ("trainer.strategy",),
    "workers": ("trainer.devices", "trainer.strategy.workers"),
}
"""Paths that are what a handle stands for; those of a learning rate depend on the config."""


def clashes(spec: SearchSpec, space: Read, description: Description) -> list[Problem]:
    """Dimensions that set the same field."""
    same = {**SAME_FIELD, "learning_rate": (_rate(spec, description),)}
    problems = [
        Problem(space.key(path), f"is already set by {handle}", "Remove one of them.")
        for handle, paths in same.items()
        for path in paths
        if spec.has(handle) and spec.has(path)
    ]
    scaled = [
        dimension.name for dimension in spec.space if dimension.name.startswith("lr_scaling.") and spec.rate is not None
    ]
    said = "is already set by learning_rate"
    return problems + [Problem(space.key(name), said, "Remove one of them.") for name in scaled]


def _rate(spec: SearchSpec, description: Description) -> str:
    try:
        return ".".join(rate_place(spec.config, description).parts)
    except ConfigError:
        return ""


def dimension_problems(dimension: Dimension, spec: SearchSpec, space: Read, description: Description) -> list[Problem]:
    """Errors and warnings, at the key of the dimension."""
    key = space.key(dimension.name)
    try:
        if dimension.name == "strategy":
            return _strategies(key, dimension, description)
        if dimension.name == "workers":
            return _elastic(key, spec, description) or _values(key, dimension, WORKERS)
        if dimension.name == "batch_size":
            return _values(key, dimension, batch_place(spec.config, description).field)
        if dimension.name == "learning_rate":
            return _rates(key, dimension, rate_place(spec.config, description).field)
        return _path(key, dimension, spec, description)
    except ConfigError as error:
        return [Problem(key, error.problem.message, error.problem.remedy)]


def _elastic(key: str, spec: SearchSpec, description: Description) -> list[Problem]:
    if workload(spec.config, description).least is None:
        return []
    why = "sets a number of workers, but the base has {min, max}: a trial cannot know its workers beforehand"
    return [Problem(key, why, "Write a number in the base, or remove this dimension.")]


def _strategies(key: str, dimension: Dimension, description: Description) -> list[Problem]:
    if dimension.kind != "values":
        return [Problem(key, "is a range", f"Write values: [{', '.join(STRATEGIES)}] or some of them.")]
    for value in dimension.choices:
        if isinstance(value, str) and value in STRATEGIES:
            continue
        for problem in check_class("trainer.strategy", value, "strategies", description):
            remedy = suggestion(value, STRATEGIES) if isinstance(value, str) else problem.remedy
            return [Problem(key, f"holds a wrong value: {problem.message}", remedy)]
    return []


def _rates(key: str, dimension: Dimension, field: Field | None) -> list[Problem]:
    if any(isinstance(value, int | float) and value <= 0 for value in dimension.ends()):
        return [Problem(key, f"has a learning rate of {shown(dimension.ends()[0])}", "Write rates above 0.")]
    return _values(key, dimension, field)


def _path(key: str, dimension: Dimension, spec: SearchSpec, description: Description) -> list[Problem]:
    if dimension.name == "seed_everything":
        return [Problem(key, "is not a field to search over", "Write seeds: 3 to run each point with several.")]
    if "." not in dimension.name and dimension.name not in ("threads", "model", "data", "optimizer", "lr_scheduler"):
        known = [*HANDLES, *(path for path, _ in fields(spec.config, description))]
        return [Problem(key, "is not a field of this config", suggestion(dimension.name, known))]
    model = named(spec.config.get("model")).info("models", description)
    if dimension.name.split(".")[0] in ("optimizer", "lr_scheduler") and model is not None and model.own_optimizer:
        return [Problem(key, f"has no effect: {model.name} has its own configure_optimizers", "Remove it.")]
    if spec.seconds_per_trial is not None and dimension.name in ("trainer.max_epochs", "trainer.max_steps"):
        return [Problem(key, "has no effect beside seconds_per_trial", "Remove one of them.")]
    there: list[PathTarget] = []
    missing: list[tuple[str, ConfigError]] = []
    for words, config in _variants(dimension, spec, description):
        try:
            there.append(place(dimension.name, config, description))
        except ConfigError as error:
            missing.append((words, error))
    if not there:
        raise missing[0][1]
    problems = (
        _classes(key, dimension, there[0], description) if there[0].group else _values(key, dimension, there[0].field)
    )
    if missing and not problems:
        words = ", ".join(dict.fromkeys(words_ for words_, _ in missing))
        problems.append(Problem(key, f"has no effect with {words}", "You need not change anything.", "warning"))
    return problems


def _variants(dimension: Dimension, spec: SearchSpec, description: Description) -> Iterable[tuple[str, dict[str, Any]]]:
    """The base under each combination of the classes that dimensions above `dimension` choose, with those in words."""
    above = [other for other in spec.space if _above(other.name, dimension.name)]
    if not above:
        return [("", spec.config)]
    variants = []
    for values in itertools.islice(itertools.product(*(other.ends() for other in above)), MOST_VARIANTS):
        config = spec.config
        for other, value in sorted(zip(above, values, strict=True), key=lambda pair: pair[0].name.count(".")):
            try:
                if other.name == "strategy":
                    config = put_strategy(config, value, description)
                else:
                    config = put(config, place(other.name, config, description), value, description)
            except ConfigError:
                continue  # said of the other dimension
        words = " and ".join(other.label(value) for other, value in zip(above, values, strict=True))
        variants.append((words, config))
    return variants


def _above(name: str, path: str) -> bool:
    return path.startswith(f"{'trainer.strategy' if name == 'strategy' else name}.")


def _classes(key: str, dimension: Dimension, where: PathTarget, description: Description) -> list[Problem]:
    assert where.group is not None
    if dimension.kind != "values":
        return [Problem(key, "is a range, but a class is needed", "Write values: [NAME, NAME].")]
    problems = [
        problem
        for value in dimension.choices
        for problem in check_class(dimension.name, value, where.group, description)
    ]
    return [Problem(key, f"holds a wrong value: {problem.message}", problem.remedy) for problem in problems[:1]]


def _values(key: str, dimension: Dimension, field: Field | None) -> list[Problem]:
    """The first value at an end of the range, or in the list, that the field does not take."""
    assert field is not None
    if field.type == "int" and dimension.kind in ("uniform", "log_uniform"):
        log = ", log: true" if dimension.kind == "log_uniform" else ""
        written = f"{{int: [{dimension.low:.0f}, {dimension.high:.0f}]{log}}}"
        return [Problem(key, "is a range of real numbers, but whole numbers are needed", f"Write {written}.")]
    if field.type not in ("int", "float", "json") and dimension.kind in RANGES:
        values = flow([True, False] if field.type == "bool" else field.choices or ["..."])
        return [Problem(key, f"is a range of numbers, but {expected(field)} is needed", f"Write values: {values}.")]
    for value in dimension.choices or dimension.ends():
        if problem := check_value(key, value, field):
            return [Problem(key, f"holds a wrong value: {problem.message}", problem.remedy)]
    return []
