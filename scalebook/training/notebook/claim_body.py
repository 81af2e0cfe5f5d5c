"""The YAML inside a claim."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from scalebook.training.config.fields import shown
from scalebook.training.errors import ConfigError
from scalebook.training.notebook.cells import ClaimCell, Figure, Side
from scalebook.training.tracking import directions, names

KEYS: Final = ("runs", "against", "figure", "metric", "target", "at_least", "at_most", "search")
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)


def read_claim(source: str, name: str, content: Mapping[str, Any]) -> ClaimCell:
    """The cell, of whose keys all are known; ConfigError for the first value that is wrong."""
    runs = content.get("runs")
    runs = [runs] if _is_side(runs) else runs
    if not isinstance(runs, list) or not runs or not all(_is_side(run) for run in runs):
        what = "is missing" if runs is None else "is not a list of experiments"
        raise ConfigError("runs", what, "Write runs: [EXPERIMENT, EXPERIMENT], or parts of a search, [{workers: 4}].")
    against = content.get("against")
    if against is not None and not _is_side(against):
        raise ConfigError(
            "against", "is not a single side", "Write an experiment, or a part of a search, {workers: 1}."
        )
    figure = content.get("figure", "samples")
    if figure not in FIGURES:
        raise ConfigError("figure", f"{shown(figure)} is unknown", f"Use one of {', '.join(FIGURES)}.")
    metric, goal = read_metric(content["metric"]) if "metric" in content else ("", None)
    target = _number(content, "target", "Write the value of the metric to reach.")
    if figure in names.AXES and target is None:
        raise ConfigError("target", f"is missing: {figure} needs a value to reach", "Write a value of the metric.")
    if figure not in names.AXES and target is not None:
        raise ConfigError("target", f"has no effect on {figure}", "Leave it out, or write figure: samples.")
    at_least, at_most = _bounds(content)
    search = content.get("search")
    if search is not None and (not isinstance(search, str) or not search):
        raise ConfigError("search", "is not the name of a search", "Write the name of a search cell.")
    sides: list[Side] = [*runs, *([] if against is None else [against])]
    if search is None and any(isinstance(side, dict) for side in sides):
        raise ConfigError(
            "search", "is missing, but runs names parts of a search", "Write search: NAME of a search cell."
        )
    return ClaimCell(source, name, runs, against, figure, metric, target, at_least, at_most, search, goal)


def read_metric(raw: Any) -> tuple[str, directions.Goal | None]:
    """Its name, and what is better of it where that is written too."""
    found = directions.named(raw)
    if found is None:
        remedy = "Write metric: NAME as a run logs it, or {NAME: max} where a higher value is better."
        raise ConfigError("metric", "is not the name of a metric", remedy)
    return found


def _bounds(content: Mapping[str, Any]) -> tuple[float | None, float | None]:
    at_least = _number(content, "at_least", "Write a number, or remove it.")
    at_most = _number(content, "at_most", "Write a number, or remove it.")
    if at_least is None and at_most is None:
        raise ConfigError("at_most", "is missing, and so is at_least", "Write at_most: 1.25.")
    if at_least is not None and at_most is not None and at_least >= at_most:
        raise ConfigError("at_least", f"is {at_least:g}, not below at_most", "Write the smaller bound at at_least.")
    return at_least, at_most


def _is_side(value: Any) -> bool:
    """A name, or values by dimension."""
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(key, str) for key in value)
    return isinstance(value, str) and bool(value)


def _number(content: Mapping[str, Any], key: str, remedy: str) -> float | None:
    value = content.get(key)
    if value is not None and not (_is_int(value) or isinstance(value, float)):
        raise ConfigError(key, "is not a number", remedy)
    return None if value is None else float(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
