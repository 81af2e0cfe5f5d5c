"""The map of a search, ready to be drawn: its trials by what became of them, field, ridge, wall, lines of constant rate
over batch. The page and the pictures for documents draw the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalebook.training.base import FailureClass
from scalebook.training.experiments.search import Dimension, SearchSpec, canonical, is_single
from scalebook.training.search.map import surface
from scalebook.training.search.map.scales import Scale, can_be_axis, scale
from scalebook.training.search.map.shades import Shades, shades
from scalebook.training.search.map.surface import Array, Iso, ShadeGrid
from scalebook.training.search.study.trials import TrialRecord

KINDS = ("finished", "pruned", "out of memory", "diverged", "infeasible", "failed", "running", "waiting")
"""What became of a trial, in the order of every legend; `infeasible` is what is neither of the two before it."""
COLOURS = {
    "finished": "#2c7a4b",
    "pruned": "#7c62b3",
    "out of memory": "#c2660c",
    "diverged": "#b23a86",
    "infeasible": "#8a7a52",
    "failed": "#b83a2d",
    "running": "#0b6e75",
    "waiting": "#8a6100",
}
"""Of each of KINDS on a light ground. Every kind has a marker of its own, too."""
FEW_COLUMNS = 16
SIDE_BY_SIDE = 6


def kind(record: TrialRecord) -> str:
    """One of KINDS."""
    if record.state == "infeasible" and record.failure in (FailureClass.OUT_OF_MEMORY, FailureClass.DIVERGED):
        return str(record.failure)
    return record.state


def value(record: TrialRecord, objective: int = 0) -> float | None:
    """A finished trial's value; None for other trials and for a value that is not finite."""
    if record.state != "finished" or objective >= len(record.values):
        return None
    reached = record.values[objective]
    return reached if np.isfinite(reached) else None


def range_of(records: Sequence[TrialRecord], spec: SearchSpec, objective: int = 0) -> Shades | None:
    """The shades of all finished trials, None before the first."""
    values = [reached for record in records if (reached := value(record, objective)) is not None]
    return shades(values, spec.objectives[objective].lower)


@dataclass(frozen=True)
class Landscape:
    """One panel. `positions[kind]` are (n, 2), `trials[kind]` the records there; `shade` those of the finished."""

    title: str
    positions: dict[str, Array]
    trials: dict[str, list[TrialRecord]]
    shade: Array
    field: ShadeGrid | None
    ridge: Array
    """Positions (n, 2), from left to right; fewer than two are no line."""
    wall: float | None
    """Where memory ends, along x."""
    iso: list[Iso]


def axes(spec: SearchSpec) -> list[str]:
    """Names of the dimensions that can be an axis, batch size and learning rate first."""
    first = ("batch_size", "learning_rate")
    names = [dimension.name for dimension in spec.space if can_be_axis(dimension)]
    return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


def panels(records: Sequence[TrialRecord], spec: SearchSpec, by: Sequence[str]) -> list[tuple[str, list[TrialRecord]]]:
    """The records divided by these categories, each part with its name; one part named "" for no category.

    One process has one worker, whatever its point says: its trials are one part.
    """
    if not by:
        return [("", list(records))]
    parts: dict[tuple[int, ...], tuple[str, list[TrialRecord]]] = {}
    dimensions = [spec.dimension(name) for name in by]
    for record in records:
        point = canonical(spec, record.point)
        if any(name not in point for name in by):
            continue
        labels = [dimension.label(point[dimension.name]) for dimension in dimensions]
        order = tuple(_place(dimension, label) for dimension, label in zip(dimensions, labels, strict=True))
        alone = "strategy" in by and is_single(point["strategy"])
        words = [
            _named(name, label) for name, label in zip(by, labels, strict=True) if not (alone and name == "workers")
        ]
        parts.setdefault(order, (", ".join(words), []))[1].append(record)
    return [parts[order] for order in sorted(parts)]


def _place(dimension: Dimension, label: str) -> int:
    labels = [dimension.label(choice) for choice in dimension.choices]
    return labels.index(label) if label in labels else len(labels)


def _named(name: str, label: str) -> str:
    if name == "strategy":
        return label
    return f"{label} worker{'' if label == '1' else 's'}" if name == "workers" else f"{name.split('.')[-1]} {label}"


def categories(spec: SearchSpec) -> list[str]:
    """The dimensions without an order."""
    return [dimension.name for dimension in spec.space if not dimension.ordered]


def combined(spec: SearchSpec, by: Sequence[str]) -> int:
    """How many panels these categories make."""
    return int(np.prod([len(spec.dimension(name).choices) for name in by])) if by else 1


def default_panels(spec: SearchSpec) -> tuple[str, ...]:
    """All categories where they make SIDE_BY_SIDE panels at most, else the first that does, else none."""
    every = tuple(categories(spec))
    if combined(spec, every) <= SIDE_BY_SIDE:
        return every
    return next(((name,) for name in every if combined(spec, (name,)) <= SIDE_BY_SIDE), ())


def landscape(
    records: Sequence[TrialRecord], spec: SearchSpec, x: str, y: str, colour: Shades | None, *, objective: int = 0,
    title: str = "", cells: int = surface.CELLS,
) -> Landscape:  # fmt: skip
    """One panel over the dimensions `x` and `y`, coloured by `colour`, which all panels share; a field of cells²."""
    across, up = scale(spec.dimension(x)), scale(spec.dimension(y))
    trials: dict[str, list[TrialRecord]] = {kind: [] for kind in KINDS}
    for record in records:
        if record.point.get(x) is None or record.point.get(y) is None:
            continue
        outcome = kind(record)
        if outcome == "finished" and value(record, objective) is None:
            outcome = "failed"  # it ended without a figure
        trials[outcome].append(record)
    positions = {
        kind: np.array([(across.position(each.point[x]), up.position(each.point[y])) for each in members]).reshape(
            -1, 2
        )
        for kind, members in trials.items()
    }
    values = [reached for each in trials["finished"] if (reached := value(each, objective)) is not None]
    shade = colour.of(values) if colour is not None and values else np.zeros(0)
    bad = np.concatenate([positions["out of memory"], positions["diverged"]])
    best = surface.ridge(positions["finished"], shade, positions["pruned"], _columns(across)) if values else []
    return Landscape(
        title=title,
        positions=positions,
        trials={kind: members for kind, members in trials.items() if members},
        shade=shade,
        field=surface.field(positions["finished"], shade, bad, cells) if values else None,
        ridge=positions["finished"][best] if "learning_rate" in (x, y) or len(best) > 1 else np.zeros((0, 2)),
        wall=_wall(positions, x),
        iso=_iso(spec, across, up),
    )


def _columns(across: Scale) -> list[float] | None:
    if across.dimension.kind in ("powers_of_two", "grid"):
        return [across.position(float(value_)) for value_ in across.dimension.grid()]
    if across.dimension.kind == "int" and (across.high - across.low) / across.dimension.step < FEW_COLUMNS:
        steps = range(int(across.low), int(across.high) + 1, across.dimension.step)
        return [across.position(float(step)) for step in steps]
    return None


def _wall(positions: dict[str, Array], x: str) -> float | None:
    """Only along a batch size: that is what memory grows with for certain."""
    if x.rsplit(".", 1)[-1] != "batch_size":
        return None
    fits = [float(row[0]) for kind in ("finished", "pruned", "diverged") for row in positions[kind]]
    return surface.wall(fits, [float(row[0]) for row in positions["out of memory"]])


def _iso(spec: SearchSpec, across: Scale, up: Scale) -> list[Iso]:
    if (across.dimension.name, up.dimension.name) != ("batch_size", "learning_rate"):
        return []
    rule, per = (spec.rate.rule, spec.rate.per) if spec.rate is not None else ("none", 1.0)
    return surface.iso_lines(across, up, rule, per)
