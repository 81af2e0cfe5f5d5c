"""Whether sampler, pruner, objectives and budget of a search go together."""

import math
from typing import Final

from scalebook.training.base import Problem
from scalebook.training.experiments import logged_metrics
from scalebook.training.experiments.classes import suggestion
from scalebook.training.experiments.logged_metrics import unlogged_remedy
from scalebook.training.experiments.search.space_body import ReadSpace
from scalebook.training.experiments.search.types import AMOUNTS, SearchSpec
from scalebook.training.tracking import directions, names

MOST_POINTS: Final = 100_000
"""Most points of a grid."""

FEW_SEEDS: Final = 5
"""Wilcoxon's signed-rank test of 3 pairs cannot fall below p = 0.125, so pruning begins with the fourth seed."""


def settings_problems(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    """Errors, and warnings of what has no effect, in the order of the keys."""
    return _objectives(spec) + _sampler(spec, space) + _pruner(spec) + _budget(spec)


def _objectives(spec: SearchSpec) -> list[Problem]:
    problems: list[Problem] = []
    metrics = [objective.name for objective in spec.objectives]
    model = None if spec.has("model") else spec.experiment.model.info
    unlogged = [
        Problem(
            "unknown-metric", "objective", f"is {name}, which the model does not log", unlogged_remedy(name, logged)
        )
        for name in metrics
        if name not in names.AXES and (logged := _logged_instead(spec, name)) is not None
    ]
    if unlogged:
        return unlogged
    if model is not None and model.metrics:
        recorded = [*model.metrics, *logged_metrics.names_seen([spec.experiment]), names.TRAIN_LOSS]
        for name in metrics:
            if name not in AMOUNTS and name not in recorded:
                what = f"is {name}, which {model.name} does not record"
                problems.append(
                    Problem("unknown-metric", "objective", what, suggestion(name, [*recorded, *AMOUNTS]), "warning")
                )
    for objective in spec.objectives:
        better = directions.of_runs(objective.name, None, (), [spec.experiment.callbacks])
        if objective.name not in AMOUNTS and not objective.said and better.guessed and not problems:
            fix = f"To choose the direction, set objective: {{{objective.name}: max}}, or min."
            problems.append(
                Problem("guessed-direction", "objective", f"is {objective.name}: {better.words}", fix, "warning")
            )
    if spec.target is not None and not any(name in AMOUNTS for name in metrics):
        what = "has no effect, because no objective measures the cost of reaching the target"
        fix = f"Set objective: [{metrics[0]}, seconds], or remove it."
        problems.append(Problem("no-effect", "target", what, fix, "warning"))
    if "seconds" in metrics and not spec.exclusive and not spec.is_simulated:
        what = "is false, so trials run at the same time and slow each other down, although you compare their times"
        problems.append(Problem("contention", "exclusive", what, "Set exclusive: true.", "warning"))
    return problems


def _logged_instead(spec: SearchSpec, metric: str) -> list[str] | None:
    """What trials log, where it is known that none logs `metric`: each may have another model, or tell it what to
    log."""
    deciding = [
        dimension
        for dimension in spec.space
        if dimension.name.partition(".")[0] in ("model", "data") and not dimension.ordered
    ]
    return None if deciding else logged_metrics.unlogged([spec.experiment], metric)


def _sampler(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    if spec.sampler == "grid":
        return _grid(spec, space)
    if spec.sampler == "qmc" and any(not dimension.ordered for dimension in spec.space):
        drawn = ", ".join(dimension.name for dimension in spec.space if not dimension.ordered)
        what = f"is qmc, which can only draw {drawn} at random"
        return [
            Problem("no-effect", "sampler", what, "Set sampler: tpe, which also learns from categories.", "warning")
        ]
    return []


def _grid(spec: SearchSpec, space: ReadSpace) -> list[Problem]:
    problems = []
    for dimension in spec.space:
        if dimension.kind in ("uniform", "log_uniform") and dimension.points is None:
            fix = f"Set {dimension.kind}: [{dimension.low:g}, {dimension.high:g}] with points: 7, or grid: [...]."
            problems.append(
                Problem("missing", space.key(dimension.name), "has no points for the grid sampler to visit", fix)
            )
    if problems:
        return problems
    size = math.prod(dimension.grid_size() or 1 for dimension in spec.space)
    if size > MOST_POINTS:
        widest = max(spec.space, key=lambda dimension: dimension.grid_size() or 1)
        what = f"has {widest.grid_size():,} values, which makes a grid of {size:,} points"
        return [Problem("too-many", space.key(widest.name), what, "Set points: 7 or a step, or sampler: tpe.")]
    if spec.space and size > spec.trials:
        what = f"are {spec.trials}, but the grid has {size} points"
        return [Problem("too-few", "trials", what, f"Set trials: {size} to visit all of them.", "warning")]
    return []


def _pruner(spec: SearchSpec) -> list[Problem]:
    if spec.pruner == "none":
        return []
    if len(spec.objectives) > 1:
        return [
            Problem(
                "contradiction", "pruner", f"is {spec.pruner}, which compares only one objective", "Set pruner: none."
            )
        ]
    if spec.objectives[0].name in AMOUNTS:
        what = f"is {spec.pruner}, which compares a metric during training and cannot compare {spec.objectives[0].name}"
        return [Problem("contradiction", "pruner", what, "Set pruner: none.")]
    if spec.pruner == "wilcoxon" and spec.seeds < 2:
        return [
            Problem(
                "contradiction",
                "pruner",
                "is wilcoxon, which compares seeds, but there is only one",
                "Set seeds: 5, or pruner: median.",
            )
        ]
    if spec.pruner == "wilcoxon" and spec.seeds < FEW_SEEDS:
        what = f"is wilcoxon, which cannot decide from {spec.seeds} seeds"
        return [Problem("too-few", "pruner", what, f"Set seeds: {FEW_SEEDS} or more.", "warning")]
    return []


def _budget(spec: SearchSpec) -> list[Problem]:
    if len(spec.points) > spec.trials:
        what = f"has {len(spec.points)} points, more than the {spec.trials} trials"
        return [Problem("too-few", "points", what, f"Set trials: {len(spec.points)} or more.", "warning")]
    return []
