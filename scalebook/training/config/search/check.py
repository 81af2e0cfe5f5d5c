"""What is wrong with a search beyond its own keys: against the base config, and dimension against dimension."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

from scalebook.training.config.classes import GROUP_OF_KEY, named
from scalebook.training.config.description import Description
from scalebook.training.config.search.dimensions import clashes, dimension_problems
from scalebook.training.config.search.point import depends, is_single, resolve, summary
from scalebook.training.config.search.settings import settings_problems
from scalebook.training.config.search.sharing import candidates, sharing_problems
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.space_body import Read
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.config.validate import validate
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError, Problem

MOST_POINTS: Final = 200
"""Points tried against validation, about 1 ms each."""

NEEDS: Final = {"batch_size": ("data",), "learning_rate": ("model", "optimizer")}
"""Handles, and what in the base says what they mean."""


def check(spec: SearchSpec, space: Read, description: Description, cores: int | None, above: str) -> list[Problem]:
    """Problems of a search that was read. `above` is the key of its base: `config` or `experiment`."""
    problems = settings_problems(spec, space, description)
    if not spec.config:
        return problems
    base = _base(spec, description, above)
    problems = base + problems + clashes(spec, space, description)
    unknown = _unknown_classes(spec, description)
    for dimension in spec.space:
        if not any(dimension.name.startswith(key) or key in NEEDS.get(dimension.name, ()) for key in unknown):
            problems += dimension_problems(dimension, spec, space, description)
    if any(problem.severity == "error" for problem in problems):
        return problems
    problems += sharing_problems(spec, space, description)
    if all(problem.severity == "warning" for problem in problems):
        problems += _impossible(spec, space, description)
    return problems + _left_out(spec, space) + (_crowded(spec, space, description, cores, above) if cores else [])


def _base(spec: SearchSpec, description: Description, above: str) -> list[Problem]:
    problems = validate(spec.config, description)
    if above == "config":
        return [
            Problem(f"config.{problem.key}", problem.message, problem.remedy, problem.severity) for problem in problems
        ]
    wrong = [problem for problem in problems if problem.severity == "error"]
    return [Problem("experiment", f"has a mistake of its own, {wrong[0]}", "")] if wrong else []


def _unknown_classes(spec: SearchSpec, description: Description) -> list[str]:
    """Keys of the base that name no known class, which is said already; whatever stands below them is not looked at."""
    classes = {key: spec.config.get(key) for key in GROUP_OF_KEY}
    return [
        key
        for key, group in GROUP_OF_KEY.items()
        if (classes[key] is not None or key in ("model", "data"))
        and named(classes[key]).info(group, description) is None
    ]


def _impossible(spec: SearchSpec, space: Read, description: Description) -> list[Problem]:
    """Points at the ends of the space, and of each two dimensions of which one chooses a class, that cannot run."""
    by_message: dict[tuple[str, str], Problem] = {}
    always = [dimension.name for dimension in spec.space if _decides(dimension, spec)]
    base = workload(spec.config, description)
    for names, point in itertools.islice(extremes(spec), MOST_POINTS):
        try:
            problems = validate(resolve(spec, point, description, base), description)
        except ConfigError as error:
            problems = [error.problem]
        for problem in problems:
            if problem.severity == "error":
                which = summary(spec, {name: point[name] for name in (*always, *names)})
                message = f"{which} cannot be: {problem.key} {problem.message}"
                by_message.setdefault(
                    (problem.key, problem.message), Problem(space.key(names[-1]), message, problem.remedy)
                )
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


def _left_out(spec: SearchSpec, space: Read) -> list[Problem]:
    """One process beside numbers of workers: runs as one worker, once."""
    if not (spec.has("strategy") and spec.has("workers")):
        return []
    single = [choice for choice in spec.dimension("strategy").choices if is_single(choice)]
    workers = candidates(spec.dimension("workers"))
    more = [f"{single[0]} x {worker}" for worker in workers if worker > 1] if single else []
    if not more or len(workers) == 1:
        return []
    named = ", ".join(more[:4]) + (" and more" if len(more) > 4 else "")
    message = f"skips {named}: {single[0]} always has one worker"
    return [Problem(space.key("workers"), message, "You need not change anything.", "warning")]


def _crowded(spec: SearchSpec, space: Read, description: Description, cores: int, above: str) -> list[Problem]:
    load = workload(spec.config, description)
    threads = max(candidates(spec.dimension("threads"))) if spec.has("threads") else load.threads
    workers = max(candidates(spec.dimension("workers"))) if spec.has("workers") else load.workers
    if spec.has("strategy") and all(is_single(choice) for choice in spec.dimension("strategy").choices):
        workers = 1
    if workers * threads <= cores:
        return []
    each = f"{threads} threads" if threads > 1 else "1 thread"
    message = f"is more than this machine has: {workers} workers with {each} each on {cores} cores"
    remedy = "They share cores, so times and staleness are those of an overloaded machine. Use fewer to measure speed."
    key = space.key("workers") if spec.has("workers") else above
    return [Problem(key, message, remedy, "warning")]
