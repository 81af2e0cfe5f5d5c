"""Why one experiment is faster or better than another, as far as recorded figures tell: one sentence for each.

An experiment is compared with one process if there is one with the same model, data and optimizer (`relative.py`): its
time and samples to the target, or its throughput, are always named. Another figure is named if it differs notably from
that of one process (without one, from the smallest among the experiments), and by more than the intervals of their
seeds. A figure that was not recorded is not named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.notebook.relative import RATE
from scalebook.training.notebook.result_row import ExperimentRow
from scalebook.training.tracking import Estimate, names

SERVED: Final = "AsyncPS"
"""The strategy whose workers push to a server and pull from it; workers of others send each other what they send."""
NOTABLE_SHARE: Final = 0.05  # of the workers' time
NOTABLE_STALENESS: Final = 0.25  # updates
NOTABLE_RATIO: Final = 1.2


@dataclass(frozen=True)
class _Figure:
    """What is told of the metric `name`. `by`: notable from this difference, as a factor where `ratio`.

    `of_server`: only of a parameter server; an experiment without one has none of it. Of time, who recorded what went
    into computing and not this has none of it either: a share of 0 is not recorded. `between_workers`: the words where
    there is no server, "" if it is then not told.
    """

    name: str
    words: Callable[[float], str]
    by: float
    ratio: bool = False
    of_server: bool = False
    between_workers: Callable[[float], str] | None = None


TIME: Final = (
    _Figure(
        names.COMMUNICATE_SHARE, lambda share: f"{100 * share:.0f} % of its time goes into communication", NOTABLE_SHARE
    ),
    _Figure(names.WAIT_SHARE, lambda share: f"{100 * share:.0f} % of its time goes into waiting", NOTABLE_SHARE),
    _Figure(names.DATA_SHARE, lambda share: f"{100 * share:.0f} % of its time goes into loading data", NOTABLE_SHARE),
)
OTHERS: Final = (
    _Figure(
        names.STALENESS_MEAN, lambda mean: "the mean staleness of its updates is "
                                           f"{mean:.2f}", NOTABLE_STALENESS, of_server=True
    ),
    _Figure(
        names.PUSHED_PER_UPDATE, lambda count: f"an update pushes {_size(count)}", NOTABLE_RATIO, ratio=True,
        between_workers=lambda count: f"per update, its workers send each other {_size(count)}",
    ),
    _Figure(
        names.PULLED_PER_UPDATE, lambda count: f"an update pulls {_size(count)}", NOTABLE_RATIO, ratio=True,
        between_workers=lambda _: "",  # all that is sent is received
    ),
)  # fmt: skip


def sentences(rows: Sequence[ExperimentRow]) -> list[tuple[str, str]]:
    """(experiment, sentence) of each row that has one; none if there is nothing to compare."""
    compared = [row for row in rows if row.run_ids]
    if len(compared) < 2:
        return []
    pairs = ((row.experiment, _sentence(row, compared)) for row in compared)
    return [(name, sentence) for name, sentence in pairs if sentence]


def _sentence(row: ExperimentRow, rows: Sequence[ExperimentRow]) -> str:
    parts = [words for figure in (*TIME, *OTHERS) if (words := _told(figure, row, rows))]
    if row.relative.figures:
        parts = [*_relative(row), *parts]
    elif speed := _speed(row, rows):
        parts.append(speed)
    text = "; ".join(parts)
    return text and f"{text[0].upper()}{text[1:]}."


def _relative(row: ExperimentRow) -> list[str]:
    """Its time and samples to the target as multiples of those of one process; without a target its throughput."""
    base, virtual = row.relative.baseline, "virtual " if row.is_simulated else ""
    time, samples, rate = (row.relative.figure(figure) for figure in ("seconds", "samples", RATE))
    reached = []
    if time.value is not None:
        reached.append(f"in {time.times} the {virtual}time of {base}")
    if samples.value is not None:
        simulated = " (simulated)" if row.is_simulated and not reached else ""  # else its time is called virtual
        reached.append(f"with {samples.times} the samples" + ("" if reached else f" of {base}{simulated}"))
    if reached:
        return [f"it reaches the target {' and '.join(reached)}"]
    if rate.value is None:
        return []
    return [f"it trains on {rate.times} as many samples per {virtual}second as {base}"]


def _told(figure: _Figure, row: ExperimentRow, rows: Sequence[ExperimentRow]) -> str:
    own = row.measured.get(figure.name)
    if own is None:
        return ""
    others = [other for other in rows if other is not row]
    if row.relative.figures and not figure.ratio:  # of bytes one process has none
        others = [other for other in others if other.relative.is_baseline] or others
    estimates = [estimate for other in others if (estimate := other.measured.get(figure.name)) is not None]
    without = [other for other in others if figure.name not in other.measured]
    is_none = figure.of_server or all(names.COMPUTE_SHARE in other.measured for other in without)
    if without and is_none and not figure.ratio:
        estimates.append(Estimate(0.0, None, 1))
    if not estimates:
        return ""
    least = min(estimates, key=lambda other: other.mean)
    words = figure.words if row.strategy == SERVED or figure.between_workers is None else figure.between_workers
    return words(own.mean) if _notable(own, least, figure.by, ratio=figure.ratio) else ""


def _speed(row: ExperimentRow, rows: Sequence[ExperimentRow]) -> str:
    """Against the slowest; "" where seconds of one clock would be held against those of another, and for one process
    that the others are compared with."""
    speeds = [(other, other.samples_per_second) for other in rows if other.samples_per_second is not None]
    own = row.samples_per_second
    if own is None or row.relative.is_baseline or len({other.is_simulated for other, _ in speeds}) > 1:
        return ""
    slowest, least = min(speeds, key=lambda pair: pair[1].mean)
    if slowest is row or least.mean <= 0 or not _notable(own, least, NOTABLE_RATIO, ratio=True):
        return ""
    second = "virtual second" if row.is_simulated else "second"
    return f"it trains on {own.mean / least.mean:.1f} times as many samples per {second} as {slowest.experiment}"


def _notable(larger: Estimate, smaller: Estimate, by: float, *, ratio: bool) -> bool:
    beyond_chance = larger.mean - smaller.mean > (larger.half or 0.0) + (smaller.half or 0.0)
    threshold = smaller.mean * by if ratio else smaller.mean + by
    return beyond_chance and larger.mean >= threshold


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
