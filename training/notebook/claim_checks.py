"""What is wrong with a claim beyond its own keys: what it names is not there, or cannot be judged."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem, one_line
from scalebook.training.experiments import Description, Experiment, classes, logged_metrics
from scalebook.training.experiments.search import read_search, search_problems
from scalebook.training.notebook.cells import BrokenCell, ClaimCell, Notebook, Part
from scalebook.training.tracking import names

FEWEST: Final = 3
"""Seeds below which nothing is judged."""
LONGEST_NAME: Final = 100


def claim_problems(nb: Notebook, cell: ClaimCell, description: Description) -> Iterator[Problem]:
    """Sides that are missing or named twice, a search that has no such part, seeds that are too few."""
    for key, side in keyed(cell):
        if isinstance(side, str):
            yield from _experiment(nb, key, side)
    yield from _twice(cell)
    by_metric: dict[str, list[Experiment]] = {}
    for plain, key in zip(cell.plain, _keys(cell), strict=True):
        cells = [nb.experiment(side) for side in plain.sides if isinstance(side, str)]
        experiments = [cell.experiment(description) for cell in cells if cell]
        if plain.search is not None:
            yield from _search(nb, plain, key, description)
            base = _base(nb, plain.search, description)
            experiments += [base] if base and not _varies(nb, plain.search, "model") else []
        by_metric.setdefault(plain.metric, []).extend(experiments)
    for metric, named in by_metric.items():
        if metric:
            yield from unknown_metric(named, metric)


def keyed(cell: ClaimCell) -> list[tuple[str, Part]]:
    """Each experiment and part of a claim with its key."""
    return [pair for plain, key in zip(cell.plain, _keys(cell), strict=True) for pair in _keyed(plain, key)]


def _keyed(plain: ClaimCell, key: str) -> list[tuple[str, Part]]:
    words = [] if plain.against is None else [f"{key}against"]
    words += [f"{key}of"] if key else [f"runs.{place}" for place in range(len(plain.runs))]
    return list(zip(words, plain.sides, strict=True))


def _keys(cell: ClaimCell) -> list[str]:
    """What stands before the keys of each of its plain claims: nothing, or the place of the ratio and a dot."""
    if not cell.ratios:
        return [""]
    return [*([] if cell.against is None else ["against."]), *(f"runs.{place}." for place in range(len(cell.runs)))]


def _twice(cell: ClaimCell) -> Iterator[Problem]:
    """Of a ratio and what it is compared with all four differ: the runs of one that stood there twice would count as
    two that know nothing of each other."""
    if sum(side == cell.against for side in cell.runs) or len({repr(side) for side in cell.runs}) < len(cell.runs):
        yield Problem(
            "repeated", "runs", "contains a side twice, or contains the baseline as a side", "Use each side only once."
        )
        return
    base = cell.ratios[:1] if cell.against is not None else []
    for ratio in cell.ratios[len(base) :]:
        sides = [
            (repr(side), one.search if isinstance(side, dict) else None)
            for one in [ratio, *base]
            for side in (one.of, one.against)
        ]
        if len(set(sides)) < len(sides):
            yield Problem("repeated", "runs", "contains the same side in both ratios", "Compare four different sides.")


def canonical(nb: Notebook, cell: ClaimCell, part: Mapping[str, Any], description: Description) -> dict[str, Any]:
    """A part of the claim's search, by the study's names of its dimensions. ConfigError without such a search."""
    search = nb.search(cell.search or "")
    if search is None:
        raise ConfigError(
            "search", f"there is no search {cell.search} in this notebook", "Set it to the name of a search cell."
        )
    spec = read_search({**search.body, "points": [dict(part)]}, nb.base(search, description), description)
    return dict(spec.points[0])


def unknown_metric(experiments: Sequence[Experiment], metric: str) -> Iterator[Problem]:
    """A problem if all models are known, and none of them records `metric`: an error if two batches have shown it."""
    if (instead := logged_metrics.unlogged(experiments, metric)) is not None:
        remedy = logged_metrics.unlogged_remedy(metric, instead)
        yield Problem("unknown-metric", "metric", f"is {metric}, which none of these experiments logs", remedy)
        return
    infos = [experiment.model.info for experiment in experiments]
    seen = logged_metrics.names_seen(experiments)
    logged = dict.fromkeys(name for info in infos if info for name in info.metrics)
    is_known = metric.startswith(names.MEASURED) or metric in (*logged, *seen, names.TRAIN_LOSS)
    if infos and all(info and info.metrics for info in infos) and not is_known:
        remedy = f"These models log {', '.join(logged)}."
        yield Problem("unknown-metric", "metric", f"is {metric}, which none of these models records", remedy, "warning")


def _experiment(nb: Notebook, key: str, name: str) -> Iterator[Problem]:
    broken = [cell.name for cell in nb.cells if isinstance(cell, BrokenCell) and cell.kind == "experiment"]
    target = nb.experiment(name)
    if target is None and name not in broken:
        remedy = classes.suggestion(name, [experiment.name for experiment in nb.experiments()])
        yield Problem(
            "unknown-name", key, f"there is no experiment {one_line(name, LONGEST_NAME)} in this notebook", remedy
        )
    elif target is not None and target.repeats < FEWEST:
        what = f"refers to {name}, which has {target.repeats} seed{'s' if target.repeats > 1 else ''}"
        yield Problem(
            "too-few",
            key,
            what,
            f"Set repeats: {FEWEST} or more in that experiment, because a verdict needs {FEWEST} seeds.",
            "warning",
        )


def _search(nb: Notebook, cell: ClaimCell, prefix: str, description: Description) -> Iterator[Problem]:
    target = nb.search(cell.search or "")
    if target is None:
        broken = [broken.name for broken in nb.cells if isinstance(broken, BrokenCell) and broken.kind == "search"]
        if cell.search not in broken:
            remedy = classes.suggestion(cell.search or "", [search.name for search in nb.searches()])
            name = one_line(cell.search or "", LONGEST_NAME)
            yield Problem("unknown-name", f"{prefix}search", f"there is no search {name} in this notebook", remedy)
        return
    parts = [(key, side) for key, side in _keyed(cell, prefix) if not isinstance(side, str)]
    if not parts:
        yield Problem(
            "no-effect",
            f"{prefix}search",
            "has no effect, because no side is a part of this search",
            "Remove it.",
            "warning",
        )
        return
    base, points = nb.base(target, description), [part for _, part in parts]
    problems = list(search_problems({**target.body, "points": points}, base, description))
    if any(problem.severity == "error" and problem.key.partition(".")[0] != "points" for problem in problems):
        return  # it is said at the search
    for problem in problems:
        word, _, rest = problem.key.partition(".")
        if word == "points" and rest:
            place, _, below = rest.partition(".")
            key = parts[int(place)][0]
            yield problem.moved_to(f"{key}.{below}" if below else key)
    seeds = target.body.get("seeds", 1)
    if isinstance(seeds, int) and seeds < FEWEST:
        what = f"is {cell.search}, which has {seeds} seed{'s' if seeds > 1 else ''}"
        yield Problem(
            "too-few",
            f"{prefix}search",
            what,
            f"Set seeds: {FEWEST} or more in that search, because a verdict needs {FEWEST} seeds.",
            "warning",
        )


def _base(nb: Notebook, name: str, description: Description) -> Experiment | None:
    search = nb.search(name)
    if search is None:
        return None
    config = search.body.get("config")
    return Experiment(config, description) if isinstance(config, Mapping) else nb.base(search, description)


def _varies(nb: Notebook, name: str, key: str) -> bool:
    search = nb.search(name)
    space = search.body.get("space") if search else None
    return isinstance(space, Mapping) and key in space
