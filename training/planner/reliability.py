"""How far plans were off from runs, by kind: each plan is given with the range of plans like it.

`reliability.json` holds every plan that was compared with a run, measured or published. The benchmarks that compare
write it with `--reliability`, each its own part; published numbers `python -m tests.published --write`.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base.files import records
from scalebook.training.engine.rules import Rule
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.answers import Range, Reliability
from scalebook.training.pricing import Profile
from scalebook.training.tracking import student_quantile

Strategy = Literal["async", "sync", "ddp", "fsdp", "peers"]
Place = Literal["machine", "short", "gpus", "network"]
PLACES: Final[dict[Place, str]] = {
    "machine": "on one machine", "short": "on one machine, with gradients below 3 ms",
    "gpus": "on the GPUs of one machine", "network": "over a network",
}  # fmt: skip
SHORT_S: Final = 0.003
"""Seconds of a gradient below which waking another worker on the machine, 0.1 to 0.3 ms, takes a tenth of it."""
FEWEST: Final = 4
"""Fewest cells for a kind to have a range of its own."""
SHARE: Final = 0.9
"""Share of a kind's plans that its range holds."""


@dataclass(frozen=True)
class ComparedPlan:
    """One plan compared with a run, or with a published speed-up. `rates`: predicted / measured updates or samples a
    second; `staleness`: the same for the mean staleness, if there is any."""

    strategy: Strategy
    place: Place
    what: str
    rates: float
    staleness: float | None = None


@dataclass(frozen=True)
class PlansCompared:
    """The comparisons of one command. `machine`: where it measured, or who published."""

    command: str
    machine: str
    cells: list[ComparedPlan]


@dataclass(frozen=True)
class Compared:
    """All comparisons, as they are committed."""

    sources: list[PlansCompared]

    def cells(self, strategy: str | None = None, place: str | None = None) -> list[ComparedPlan]:
        """The cells of a strategy and a place; without these, of all."""
        return [
            cell
            for source in self.sources
            for cell in source.cells
            if strategy in (None, cell.strategy) and place in (None, cell.place)
        ]

    def of(self, strategy: Strategy, place: Place) -> Reliability:
        """The reliability of plans of this strategy at this place; if too few were compared, of this strategy on any
        cores, else of all, which `Reliability.borrowed` says."""
        same_place, anywhere = self.cells(strategy, place), self.cells(strategy)
        if len(same_place) >= FEWEST:
            kind, cells = f"{strategy} {PLACES[place]}", same_place
        else:
            kind, cells = (f"{strategy} {PLACES[place]}", same_place) if place == "gpus" else (strategy, anywhere)
        borrows = len(cells) < FEWEST
        within = self.cells() if borrows else cells
        stale = [one.staleness for one in cells if one.staleness is not None]
        if len(stale) < FEWEST:
            stale = [one.staleness for one in anywhere if one.staleness is not None]
        return Reliability(
            kind,
            likely_range([one.rates for one in within]),
            likely_range(stale) if len(stale) >= FEWEST else None,
            len(cells),
            [source.command for source in self.sources if any(one in within for one in source.cells)],
            len(within) if borrows else 0,
        )


def likely_range(ratios: Sequence[float]) -> Range:
    """The range in which the next ratio lies with probability SHARE, if logarithms of ratios are normal: a prediction
    interval by Student's t, wider than the given ratios where these are few."""
    logs = [math.log(ratio) for ratio in ratios]
    center, count = statistics.fmean(logs), len(logs)
    off = student_quantile((1 + SHARE) / 2, count - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / count)
    return Range(math.exp(center - off), math.exp(center + off))


def reliability_of(profile: Profile, rule: Rule | WithoutServer, own_network: bool) -> Reliability:
    """The reliability of a plan of this rule. `own_network`: over the profile's own links."""
    place: Place = "network"
    if own_network and profile.gpus:
        place = "gpus"
    elif own_network and profile.cores is not None:
        place = "short" if profile.gradient_mean_s < SHORT_S else "machine"
    return read_comparisons().of(strategy_of(rule), place)


def strategy_of(rule: Rule | WithoutServer) -> Strategy:
    """All rules that wait for a whole round are `sync`, all others `async`."""
    if isinstance(rule, AllReduce):
        return "fsdp" if rule.sharded else "ddp"
    if isinstance(rule, WithoutServer):
        return "peers"
    return "sync" if rule.synchronous else "async"


@cache
def read_comparisons() -> Compared:
    """The committed comparisons."""
    with resources.as_file(resources.files("scalebook.training.planner") / "reliability.json") as path:
        plans = records.load(path, Compared)
    assert plans is not None, "the package contains this file"
    return plans


def write(path: Path, source: PlansCompared) -> None:
    """Replace the earlier comparisons of the same command, whatever its options were."""
    earlier = records.load(path, Compared) or Compared([])
    others = [entry for entry in earlier.sources if _without_options(entry) != _without_options(source)]
    records.save(path, Compared(sorted([*others, source], key=lambda entry: entry.command)))


def _without_options(source: PlansCompared) -> str:
    return source.command.partition(" --")[0]
