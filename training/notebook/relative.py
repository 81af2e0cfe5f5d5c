"""One process as the baseline: what each experiment of a comparison takes, as a multiple of what one process takes.
Where no experiment has one process, the baseline is that of a claim about them.

With a target: the seconds, samples and bytes until a run reaches it. Without one: samples a second. Ratios and their
intervals are those of claims (`claims/intervals.py`): as a claim of the notebook about the row has them, else each by
itself.
"""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal

from scalebook.training.experiments import Experiment, SingleProcess, config_hash
from scalebook.training.notebook import number_format
from scalebook.training.notebook.claims.intervals import FEWEST, Amount, crossing, ratio_interval
from scalebook.training.tracking import MetricCurve, RunRecord, names

RelativeFigure = Literal["seconds", "samples", "bytes", "samples_per_second"]
RATE: Final = "samples_per_second"
TO_TARGET: Final[tuple[RelativeFigure, ...]] = ("seconds", "samples", "bytes")
FIGURES: Final[tuple[RelativeFigure, ...]] = (*TO_TARGET, RATE)
TIMED: Final[tuple[RelativeFigure, ...]] = ("seconds", RATE)
"""Figures that depend on a clock."""
WORDS: Final[Mapping[RelativeFigure, str]] = {
    "seconds": "seconds", "samples": "samples", "bytes": "bytes", RATE: "samples/s"
}  # fmt: skip
"""The figures as tables call them."""
HEAD: Final = "x one process"
"""What stands above them, if all baselines have one process."""
OTHER_HEAD: Final = "x baseline"
BASELINE: Final = "baseline"
ITSELF: Final = "it uses one process itself"
SAME: Final = 0.05
LOADING: Final = frozenset({"batch_size", "num_workers"})
"""Arguments of a data set that say how it is loaded, not what is learned."""
LEARNING_RATE: Final = re.compile(r"(^|_)(lr|learning_rate)(_|$)")
"""Arguments that are learning rates, which each experiment has for itself."""


@dataclass(frozen=True)
class Relative:
    """One figure of an experiment divided by that of its baseline: geometric means over seeds.

    `value` None: there is no ratio, and `reason` says why. `low` and `high`, the 95 % interval, are None with fewer
    than three seeds on a side. `bound`: runs of the experiment missed the target, so the ratio is larger (">"); or
    those of the baseline did, so it is smaller ("<").
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: Literal["", "<", ">"] = ""
    seeds: int = 0
    """Of the side that has fewer."""
    reason: str = ""
    """Why there is no ratio, or no interval."""
    is_simulated: bool = False
    """It has virtual workers, whose seconds are those of the declared clock."""
    claimed: bool | None = None
    """Whether a claim about this figure is resolved; None where there is none."""

    @property
    def is_resolved(self) -> bool:
        """Whether the claim about it is; without one, whether the interval excludes 1."""
        if self.claimed is not None:
            return self.claimed
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def is_same(self) -> bool:
        """Whether the interval is so narrow about 1 that nothing differs."""
        return self.low is not None and self.high is not None and self.low >= 1 - SAME and self.high <= 1 + SAME

    @property
    def text(self) -> str:
        """For a table: `0.57 (0.52 to 0.63)`; without an interval `0.57`; `> 1.20` where runs missed the target."""
        if self.value is None:
            return number_format.NOTHING
        interval = f" ({self._range})" if self._range else ""
        return f"{self.bound} {number_format.factor(self.value)}{interval}".strip()

    @property
    def times(self) -> str:
        """For a sentence: `0.57x (0.52 to 0.63)`; `1.04x (0.90 to 1.20, not resolved)`; `more than 1.20x`."""
        assert self.value is not None
        words = {"<": "less than ", ">": "more than ", "": ""}[self.bound]
        unresolved = "" if self.is_resolved or self.is_same else ", not resolved"
        interval = f" ({self._range}{unresolved})" if self._range else ""
        return f"{words}{number_format.factor(self.value)}x{interval}"

    @property
    def _range(self) -> str:
        if self.bound or self.low is None or self.high is None:
            return ""
        return f"{number_format.factor(self.low)} to {number_format.factor(self.high)}"


@dataclass(frozen=True)
class RelativeRow:
    """The figures of an experiment relative to `baseline`, the experiment with one process that it is compared with.

    `baseline` "": there is none, for this `reason`; or it uses one process itself, and `is_baseline` where others are
    compared with it.
    """

    baseline: str = ""
    figures: Mapping[RelativeFigure, Relative] = field(default_factory=dict)
    is_baseline: bool = False
    reason: str = ""
    of_one_process: bool = True
    """Whether the baseline has one process."""
    base_time: float | None = None
    """The geometric mean of the baseline, also for the baseline itself: seconds to the target, without a target samples
    a second. None if it is on another clock, or one of its runs missed the target."""

    def figure(self, figure: RelativeFigure) -> Relative:
        """An empty one where it was not computed."""
        return self.figures.get(figure) or Relative(reason=self.reason)

    def text(self, figure: RelativeFigure) -> str:
        """As a table has it: `baseline`; `0.57 (0.52 to 0.63)`; with simulated workers `0.57 virtual`."""
        one = self.figure(figure)
        virtual = " virtual" if one.value is not None and one.is_simulated and figure in TIMED else ""
        return BASELINE if self.is_baseline else f"{one.text}{virtual}"


@dataclass(frozen=True)
class ComparedSide:
    """An experiment with its finished runs. `experiment` None: its config cannot be read. `shared`: in words, which of
    its seeds are not independent."""

    name: str
    experiment: Experiment | None
    runs: Sequence[RunRecord] = ()
    shared: str = ""

    @property
    def workers(self) -> int:
        return self.experiment.strategy.workers if self.experiment else 0

    @property
    def is_simulated(self) -> bool:
        return self.experiment is not None and self.experiment.strategy.is_simulated

    @property
    def whole(self) -> list[RunRecord]:
        """Its runs that kept all workers; the others are no runs of its config."""
        return [run for run in self.runs if names.TAG_WORKERS_LOST not in run.tags]

    @cached_property
    def key(self) -> str:
        """The same for sides that differ in their seeds alone."""
        return config_hash(self.experiment) if self.experiment else ""


@dataclass(frozen=True)
class ClaimedRatio:
    """A claim about a side compared with `against`: the level of its interval, and whether it is resolved. `figure` is
    what it claims something of."""

    against: str
    level: float
    figure: str
    is_resolved: bool


def relative_rows(
    sides: Sequence[ComparedSide],
    curves: Mapping[str, MetricCurve],
    target: float | None,
    lower: bool,
    claims: Mapping[str, ClaimedRatio] = MappingProxyType({}),
) -> dict[str, RelativeRow]:
    """The row of each side, by name. `curves` by run id are those of the compared metric; `lower`: a lower value is
    better; `claims`: what is claimed of sides, by name. A baseline consists of all sides of its config: on the Compare
    page each run is a side."""
    read = _Amounts(curves, target, lower)
    base_of = _baselines(sides, claims)
    used = _used(sides, base_of)
    rows = {}
    for side in sides:
        base = base_of[side.name]
        if isinstance(base, str) and side.key in used:
            rows[side.name] = RelativeRow(is_baseline=True, base_time=_base_time(side, side, read))
        elif isinstance(base, str):
            rows[side.name] = RelativeRow(reason=base)
        elif base.key == side.key:
            is_baseline = side.key in used
            base_time = _base_time(side, base, read) if is_baseline else None
            rows[side.name] = RelativeRow(
                is_baseline=is_baseline, reason="" if is_baseline else ITSELF, base_time=base_time
            )
        else:
            figures = (RATE,) if target is None else FIGURES
            claim = claims.get(side.name)
            claim = claim if claim is not None and claim.against == base.name else None
            ratios = {figure: _relative(figure, side, base, read, claim) for figure in figures}
            rows[side.name] = RelativeRow(
                base.name, ratios, of_one_process=base.workers == 1, base_time=_base_time(side, base, read)
            )
    return rows


def _baselines(sides: Sequence[ComparedSide], claims: Mapping[str, ClaimedRatio]) -> dict[str, "ComparedSide | str"]:
    """By name, what each side is compared with, which may be the side itself; or why with nothing. Without one process,
    it is what a claim about the side compares it with."""
    one_process, by_name = _merged(side for side in sides if side.workers == 1), {side.name: side for side in sides}
    base_of = {side.name: _baseline(side, one_process) for side in sides}
    used = _used(sides, base_of)
    for side in sides:
        base, claim = base_of[side.name], claims.get(side.name)
        against = None if claim is None else by_name.get(claim.against)
        lacks = isinstance(base, str) or (base.key == side.key and side.key not in used)
        if lacks and against is not None and against.key != side.key:
            base_of[side.name] = against
    return base_of


def _used(sides: Sequence[ComparedSide], base_of: Mapping[str, "ComparedSide | str"]) -> set[str]:
    """The keys of those with which others are compared."""
    return {base.key for side in sides if isinstance(base := base_of[side.name], ComparedSide) and base.key != side.key}


def _base_time(side: ComparedSide, base: ComparedSide, read: "_Amounts") -> float | None:
    figure: RelativeFigure = RATE if read.target is None else "seconds"
    amounts = read.by_seed(base, figure)
    is_known = not (_lacking(figure, base, amounts) or _any(amounts, "censored") or _any(amounts, "at_once"))
    return math.exp(_log_mean(amounts)) if is_known and side.is_simulated == base.is_simulated else None


def figures_of_runs(
    side: ComparedSide, row: RelativeRow, curves: Mapping[str, MetricCurve], target: float | None, lower: bool
) -> dict[str, dict[str, float]]:
    """What MLflow records of each run, by its id and the metric's name."""
    by_run: dict[str, dict[str, float]] = {}
    for run in side.whole:
        values: dict[str, float] = {}
        for axis, metric in (("seconds", names.SECONDS_TO_TARGET), ("samples", names.SAMPLES_TO_TARGET)):
            amount = None if target is None else crossing(*curves[run.id].on(axis), target, lower)
            if amount is not None and not amount.censored:
                values[metric] = amount.value
        seconds, rate = values.get(names.SECONDS_TO_TARGET), run.metrics.get(names.SAMPLES_PER_SECOND)
        if row.base_time and target is not None and seconds:
            values[names.RELATIVE_TIME] = seconds / row.base_time
        elif row.base_time and target is None and rate:
            values[names.RELATIVE_TIME] = row.base_time / rate
        by_run[run.id] = values
    return by_run


def head(rows: Iterable[RelativeRow]) -> str:
    """What stands above the figures."""
    return HEAD if all(row.of_one_process for row in rows) else OTHER_HEAD


def shown(rows: Iterable[RelativeRow]) -> list[RelativeFigure]:
    """The figures that a table has columns for: those with a ratio in any row; the rate only if there is no target."""
    listed = list(rows)
    with_values = [one for one in FIGURES if any(row.figure(one).value is not None for row in listed)]
    with_target = any(one in row.figures for row in listed for one in TO_TARGET)
    return [figure for figure in with_values if figure != RATE or not with_target]


def remarks(rows: Mapping[str, RelativeRow]) -> list[str]:
    """What the columns mean, and why ratios or their intervals are missing. `rows` by experiment, those with runs;
    empty if there is nothing to compare with one process."""
    compared = {name: row for name, row in rows.items() if row.figures or row.reason not in ("", ITSELF)}
    if not compared or len(rows) < 2:
        return []
    columns = shown(rows.values())
    words = []
    if columns:
        bases = {name: row.baseline for name, row in rows.items() if row.baseline}
        one = next(iter(bases.values()))
        of = one if len(set(bases.values())) == 1 else "; ".join(f"{base} for {name}" for name, base in bases.items())
        bound = any(row.figure(figure).bound for row in compared.values() for figure in columns)
        ends = (
            " > or <: some runs missed the target, or had already reached it at their first validation."
            if bound
            else ""
        )
        is_claimed = any(one.claimed is not None for row in compared.values() for one in row.figures.values())
        claim = " (or the interval of the claim about this figure)" if is_claimed else ""
        words.append(
            f"{head(rows.values())}: the figure divided by the figure of {of}, with the 95 % interval in "
            f"brackets{claim}.{ends}"
        )
    missing: dict[str, list[str]] = {}
    wide: dict[str, list[str]] = {}
    for name, row in compared.items():
        if row.reason:
            missing.setdefault(row.reason, []).append(name)
        for figure, one_figure in row.figures.items():
            if one_figure.reason and one_figure.value is not None and figure in columns:
                wide.setdefault(one_figure.reason, []).append(name)
            elif one_figure.reason and (figure in columns or figure == "seconds" or not columns):
                missing.setdefault(one_figure.reason, []).append(name)
    for what, by_reason in (("Not compared with one process", missing), ("No interval", wide)):
        for reason, whose in by_reason.items():
            concerned = list(dict.fromkeys(whose))
            of = "" if len(concerned) == len(compared) else f" for {', '.join(concerned)}"
            words.append(f"{what}{of}: {reason}.")
    return words


def _merged(sides: Iterable[ComparedSide]) -> list[ComparedSide]:
    """Sides of one config, which differ in their seeds, as one that is called by their cell."""
    by_config: dict[str, list[ComparedSide]] = {}
    for side in sides:
        by_config.setdefault(side.key, []).append(side)
    return [
        same[0]
        if len(same) == 1
        else ComparedSide(
            (same[0].runs[0].cell if same[0].runs else None) or same[0].name,
            same[0].experiment,
            [run for side in same for run in side.runs],
            next((side.shared for side in same if side.shared), ""),
        )
        for same in by_config.values()
    ]


def _baseline(side: ComparedSide, one_process: Sequence[ComparedSide]) -> ComparedSide | str:
    """The one of `one_process` that the side is compared with, which may be the side itself; or why there is none."""
    if side.experiment is None:
        return "the config cannot be read"
    if not one_process:
        return "none of these experiments uses one process"
    itself = next((one for one in one_process if one.key == side.key), None)
    if itself is not None and isinstance(side.experiment.strategy, SingleProcess):
        return itself
    differing = {one.name: _difference(one.experiment, side.experiment) for one in one_process if one.experiment}
    alike = [one for one in one_process if not differing[one.name]]
    if not alike:
        return f"the experiments with one process differ from it in {', '.join(dict.fromkeys(differing.values()))}"
    if itself is not None and not any(_is_single(one) for one in alike):
        return itself
    return _closest(side, side.experiment, alike)


def _difference(one: Experiment, other: Experiment) -> str:
    """The first key in which model, data or optimizer differ. What is tuned for each experiment may differ: learning
    rates, batch sizes, the settings of the optimizer."""
    for key in ("model", "data", "optimizer"):
        mine, theirs = one.classes[key], other.classes[key]
        if mine.name != theirs.name:
            return key
        fixed = () if key == "optimizer" else dict.fromkeys([*mine.args, *theirs.args])
        for name in fixed:
            is_own = LEARNING_RATE.search(name) or (key == "data" and name in LOADING)
            if not is_own and mine.setting(name) != theirs.setting(name):
                return f"{key}.{name}"
    return ""


def _closest(side: ComparedSide, own: Experiment, alike: Sequence[ComparedSide]) -> ComparedSide | str:
    """Of several the one on the same clock, of Lightning's own strategy rather than another one with one worker, with
    the same rule and settings of the optimizer, if there is one; then with the same batch, and the same rate."""

    def narrowed(sides: Sequence[ComparedSide], same: Iterable[bool]) -> list[ComparedSide]:
        return [one for one, is_same in zip(sides, same, strict=True) if is_same] or [*sides]

    def optimizer(experiment: Experiment) -> dict[str, object]:
        return {key: value for key, value in experiment.optimizer.args.items() if not LEARNING_RATE.search(key)}

    left = narrowed(alike, (one.is_simulated == side.is_simulated for one in alike))
    left = narrowed(left, (_is_single(one) for one in left))
    left = narrowed(left, (_of(one).strategy.words == own.strategy.words for one in left))
    left = narrowed(left, (optimizer(_of(one)) == optimizer(own) for one in left))
    if len(left) == 1:
        return left[0]
    called = ", ".join(one.name for one in left)
    left = [one for one in left if _of(one).batch.effective == own.batch.effective]
    if not left:
        return (
            f"several experiments use one process ({called}), but none of them uses {own.batch.effective} samples per "
            "update"
        )
    left = narrowed(left, (_of(one).rate.applied == own.rate.applied for one in left))
    if len(left) > 1:
        return f"several experiments use one process and the same batch size ({', '.join(one.name for one in left)})"
    return left[0]


def _of(side: ComparedSide) -> Experiment:
    assert side.experiment is not None
    return side.experiment


def _is_single(side: ComparedSide) -> bool:
    return isinstance(_of(side).strategy, SingleProcess)


def _relative(
    figure: RelativeFigure, side: ComparedSide, base: ComparedSide, read: "_Amounts", claim: ClaimedRatio | None
) -> Relative:
    if figure in TIMED and side.is_simulated != base.is_simulated:
        virtual, measured = (side, base) if side.is_simulated else (base, side)
        return Relative(reason=f"the seconds of {virtual.name} are virtual, but those of {measured.name} are measured")
    by_side: list[dict[int, Amount]] = []
    for one in (side, base):
        amounts = read.by_seed(one, figure)
        if why := _lacking(figure, one, amounts):
            return Relative(reason=why)
        by_side.append(amounts)
    mine, theirs = by_side
    larger = _any(mine, "censored") or _any(theirs, "at_once")
    smaller = _any(theirs, "censored") or _any(mine, "at_once")
    if larger and smaller:
        return Relative(
            reason="runs on both sides missed the target, or had already reached it at their first validation"
        )
    value = math.exp(_log_mean(mine) - _log_mean(theirs))
    interval = None if side.shared or base.shared else ratio_interval(mine, theirs)
    seeds = min(len(mine), len(theirs))
    why = ""
    if interval is None:
        few = "one seed" if seeds == 1 else f"{seeds} seeds, but an interval needs {FEWEST}"
        why = few if seeds < FEWEST else "the seeds are not independent"
    level = None if claim is None or interval is None else claim.level
    low, high = (None, None) if interval is None else interval.ends(level or interval.level)
    bound: Literal["", "<", ">"] = ">" if larger else "<" if smaller else ""
    resolved = claim.is_resolved if claim is not None and claim.figure == figure else None
    return Relative(value, low, high, bound, seeds, why, side.is_simulated, resolved)


class _Amounts:
    """What each run took or reached, read once for each side and figure, as long as the sides exist."""

    def __init__(self, curves: Mapping[str, MetricCurve], target: float | None, lower: bool) -> None:
        self.curves, self.target, self.lower = curves, target, lower
        self._read: dict[tuple[int, str], dict[int, Amount]] = {}

    def by_seed(self, side: ComparedSide, figure: RelativeFigure) -> dict[int, Amount]:
        """By seed; without runs that have not recorded it."""
        key = (id(side), figure)
        if key not in self._read:
            amounts: dict[int, Amount] = {}
            for place, run in enumerate(side.whole):
                seed = run.tags.get(names.TAG_SEED, "")
                if (amount := self._amount(run, figure)) is not None:
                    amounts.setdefault(int(seed) if seed.isdecimal() else -1 - place, amount)
            self._read[key] = amounts
        return self._read[key]

    def _amount(self, run: RunRecord, figure: RelativeFigure) -> Amount | None:
        if figure == RATE:
            rate = run.metrics.get(names.SAMPLES_PER_SECOND)
            return None if rate is None else Amount(rate)
        assert self.target is not None
        return crossing(*self.curves[run.id].on(figure), self.target, self.lower)


def _lacking(figure: RelativeFigure, side: ComparedSide, amounts: Mapping[int, Amount]) -> str:
    """Why there is no ratio with these amounts of the side; "" if there is one."""
    if not side.runs:
        return f"no run of {side.name} has finished"
    if not side.whole:
        return f"all runs of {side.name} lost workers"
    if not amounts or any(not (amount.value > 0 and math.isfinite(amount.value)) for amount in amounts.values()):
        if figure == "bytes":
            return f"{side.name} transfers no bytes"
        what = "throughput" if figure == RATE else f"{figure} to the target"
        return f"{side.name} has recorded no {what} above 0"
    return ""


def _log_mean(amounts: Mapping[int, Amount]) -> float:
    return statistics.fmean(math.log(amount.value) for amount in amounts.values())


def _any(amounts: Mapping[int, Amount], what: Literal["censored", "at_once"]) -> bool:
    return any(getattr(amount, what) for amount in amounts.values())
