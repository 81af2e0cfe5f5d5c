"""A search: an Optuna study over an experiment's config, as a cell or a file describes it. Nothing here runs anything.

`read_search` and `body_of` are inverses: `read_search(body_of(spec), None, description) == spec`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from scalebook.training.config.classes import named
from scalebook.training.config.description import Description
from scalebook.training.config.identity import DIGITS, base_content
from scalebook.training.config.search.body import read_body, write_body
from scalebook.training.config.search.check import check
from scalebook.training.config.search.types import AMOUNTS, Objective, RateRule, SearchSpec
from scalebook.training.errors import ConfigError, Problem

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


def read_search(body: Mapping[str, Any], base: Mapping[str, Any] | None, description: Description) -> SearchSpec:
    """The search that `body` describes. `base` is the config of the experiment that it names, None where it holds one.

    ConfigError for the first thing that is wrong, with key and remedy; warnings pass.
    """
    spec, problems = _read(body, base, description, None)
    for problem in problems:
        if problem.severity == "error":
            raise ConfigError(problem.key, problem.message, problem.remedy)
    return spec


def search_problems(
    body: Mapping[str, Any], base: Mapping[str, Any] | None, description: Description, cores: int | None = None
) -> list[Problem]:
    """All that is wrong with a search, found without running anything; keys are those of `body`.

    Warnings are settings without effect, combinations that are left out, and, where `cores` is told, workers without a
    core of their own.
    """
    return _read(body, base, description, cores)[1]


def body_of(spec: SearchSpec) -> dict[str, Any]:
    """A body that reads as `spec`, with the config inline."""
    return write_body(spec)


def identity(spec: SearchSpec, description: Description) -> str:
    """12 hex digits of what may not change while a study goes on: base config, space, objectives, what a trial is.

    The same for any order of keys and any way to name the base's classes. Not of the budget: trials, seeds of a point,
    sampler, pruner, minutes, failures, points, storage and exclusive may change. The order of categories matters: a
    study keeps it.
    """
    body = write_body(spec)
    content = {
        "config": base_content(spec.config, description),
        "space": body["space"],
        "objective": [(objective.name, objective.lower) for objective in spec.objectives],
        **{key: body.get(key) for key in ("target", "scaling", "seconds_per_trial", "memory_mb")},
    }
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _read(
    body: Mapping[str, Any], base: Mapping[str, Any] | None, description: Description, cores: int | None
) -> tuple[SearchSpec, list[Problem]]:
    config = body.get("config") if isinstance(body.get("config"), Mapping) else base
    model = named((config or {}).get("model")).info("models", description)
    metric = model.metrics[0] if model is not None and model.metrics else None
    spec, problems, space = read_body(body, base, metric)
    above = "config" if isinstance(body.get("config"), Mapping) else "experiment"
    return spec, problems + check(spec, space, description, cores, above)


def _plain(value: Any) -> Any:
    """16 and 16.0 are one number, as they are to whoever edits the search."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
