"""The YAML inside a claim."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from scalebook.training.base import ConfigError
from scalebook.training.experiments import quoted_value
from scalebook.training.notebook.cells import ClaimCell, Figure, Ratio, Side
from scalebook.training.tracking import directions, names

OF: Final = "of"
"""The key that makes a side a ratio; no dimension of a search is called so."""
SHARED: Final = ("figure", "metric", "target", "search")
"""Keys that a ratio may have for itself."""
KEYS: Final = ("runs", "against", "figure", "metric", "target", "at_least", "at_most", "search")
HELP: Final[Mapping[str, str]] = {
    "runs": "The sides to compare. The claim must hold for each side. A side is an experiment, a part of a search, "
    "such as `{workers: 4}`, or a ratio, such as `{of: {workers: 8}, against: {workers: 1}, search: rates}`. "
    "Each ratio can have a separate metric, target and search.",
    "against": "The baseline: an experiment, a part of a search, or a ratio. Without a baseline, the bounds apply to "
    "the figure itself.",
    "figure": "The figure to compare: updates, samples, seconds or bytes to the target; the best value of the "
    "metric; or updates or samples per second. The default is samples.",
    "metric": "The metric that must reach the target, or whose best value is compared. `{my_score: max}` means that "
    "higher is better.",
    "target": "The metric value to reach.",
    "at_least": "Lower bound on the ratio to the baseline or, without a baseline, on the figure itself.",
    "at_most": "Upper bound on the ratio to the baseline or, without a baseline, on the figure itself. A ratio of at "
    "most 0.8 means at least 20 % less.",
    "search": "The search that a part such as `workers: 4` belongs to. Each part is represented by its best point.",
}
"""What each key means."""
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)


def read_claim(source: str, name: str, content: Mapping[str, Any]) -> ClaimCell:
    """The claim, whose keys are all known; ConfigError for the first value that is wrong."""
    runs = content.get("runs")
    runs = [runs] if _is_side(runs) else runs
    if not isinstance(runs, list) or not runs or not all(_is_side(run) for run in runs):
        what = "is missing" if runs is None else "is not a list of experiments"
        raise ConfigError(
            "runs", what, "Set runs: [EXPERIMENT, EXPERIMENT], or use parts of a search, such as [{workers: 4}]."
        )
    against = content.get("against")
    if against is not None and not _is_side(against):
        raise ConfigError(
            "against", "is not a single side", "Use an experiment, or a part of a search, such as {workers: 1}."
        )
    raw = {**({} if against is None else {"against": against}), **{f"runs.{i}": run for i, run in enumerate(runs)}}
    _alike(raw)
    ratios = {key: side for key, side in raw.items() if _is_ratio(side)}
    for key in SHARED if ratios else ():
        if key in content and all(key in ratio for ratio in ratios.values()):
            raise ConfigError(
                key, "has no effect here, because each ratio sets this key separately", "Remove it.", "no-effect"
            )
    figure, metric, target, search, goal = ("samples", "", None, None, None) if ratios else _measured(content, raw)
    sides: dict[str, Side] = {key: _ratio(key, side, content) if key in ratios else side for key, side in raw.items()}
    made = [side for side in sides.values() if isinstance(side, Ratio)]
    if made and "target" in content and all(ratio.target is None for ratio in made):
        raise ConfigError(
            "target", "has no effect, because no ratio has a figure that needs a target", "Remove it.", "no-effect"
        )
    least, most = _bounds(content)
    base = sides.pop("against", None)
    return ClaimCell(source, name, [*sides.values()], base, figure, metric, target, least, most, search, goal)


def _alike(sides: Mapping[str, Any]) -> None:
    """ConfigError where some are ratios and others are not."""
    plain = [key for key, side in sides.items() if not _is_ratio(side)]
    if plain and len(plain) < len(sides):
        remedy = "Use {of: ..., against: ...} for every side, or for no side."
        raise ConfigError(plain[0], "is not a ratio, but other sides are ratios", remedy)


def _ratio(key: str, raw: Mapping[str, Any], content: Mapping[str, Any]) -> Ratio:
    """The ratio at `key`; what it does not say stands in the claim, `content`."""
    for word in raw:
        if word not in (OF, "against", *SHARED):
            keys = ", ".join((OF, "against", *SHARED))
            raise ConfigError(f"{key}.{word}", "is not a key of a ratio", f"Known keys: {keys}.", "unknown-key")
    sides = {f"{key}.{word}": raw.get(word) for word in (OF, "against")}
    for place, side in sides.items():
        if not _is_side(side) or _is_ratio(side):
            what = "is missing" if side is None else "is not a single side"
            raise ConfigError(place, what, "Use an experiment, or a part of a search, such as {workers: 1}.")
    inherited = {word: content[word] for word in SHARED if word in content}
    if raw.get("figure", inherited.get("figure", "samples")) not in names.AXES:
        inherited.pop("target", None)  # it is of the ratios that have one to reach
    if not any(isinstance(side, Mapping) for side in sides.values()):
        inherited.pop("search", None)
    try:
        figure, metric, target, search, goal = _measured({**inherited, **raw}, sides)
    except ConfigError as error:
        problem = error.problem
        where = f"{key}.{problem.key}" if problem.key in raw else problem.key
        raise ConfigError(where, problem.message, problem.fix, problem.code) from error
    return Ratio(raw[OF], raw["against"], figure, metric, target, search, goal)


def _measured(
    content: Mapping[str, Any], sides: Mapping[str, Any]
) -> tuple[Figure, str, float | None, str | None, directions.Goal | None]:
    """Figure, metric, target, search, and what is better of the metric."""
    figure = content.get("figure", "samples")
    if figure not in FIGURES:
        raise ConfigError("figure", f"{quoted_value(figure)} is unknown", f"Use one of {', '.join(FIGURES)}.")
    metric, goal = read_metric(content["metric"]) if "metric" in content else ("", None)
    target = _number(content, "target", "Set it to the value of the metric to reach.")
    if figure in names.AXES and target is None:
        raise ConfigError(
            "target",
            f"is missing, but the figure {figure} needs a value to reach",
            "Set it to a value of the metric.",
            "missing",
        )
    if figure not in names.AXES and target is not None:
        raise ConfigError("target", f"has no effect on {figure}", "Leave it out, or set figure: samples.", "no-effect")
    search = content.get("search")
    if search is not None and (not isinstance(search, str) or not search):
        raise ConfigError("search", "is not the name of a search", "Set it to the name of a search cell.")
    for key, side in sides.items():
        if search is None and isinstance(side, Mapping):
            what = f"is missing, but {key.partition('.')[0]} contains parts of a search"
            raise ConfigError("search", what, "Set search: NAME, where NAME is a search cell.")
    return figure, metric, target, search, goal


def read_metric(raw: Any) -> tuple[str, directions.Goal | None]:
    """The metric's name, and its better direction if that is written too."""
    metric = directions.read_metric_name(raw)
    if metric is None:
        remedy = (
            "Set metric: NAME, where NAME is a metric that the runs log, or metric: {NAME: max} if a higher value is "
            "better."
        )
        raise ConfigError("metric", "is not the name of a metric", remedy)
    return metric


def _bounds(content: Mapping[str, Any]) -> tuple[float | None, float | None]:
    at_least = _number(content, "at_least", "Set it to a number, or remove it.")
    at_most = _number(content, "at_most", "Set it to a number, or remove it.")
    if at_least is None and at_most is None:
        raise ConfigError(
            "at_most", "is missing, and at_least is missing too", "Set at_most, for example at_most: 1.25.", "missing"
        )
    if at_least is not None and at_most is not None and at_least >= at_most:
        raise ConfigError(
            "at_least",
            f"is {at_least:g}, which is not below at_most",
            "Set at_least to the smaller bound.",
            "out-of-bounds",
        )
    return at_least, at_most


def _is_ratio(side: Any) -> bool:
    return isinstance(side, Mapping) and OF in side


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
