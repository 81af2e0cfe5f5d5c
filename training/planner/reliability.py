"""How far plans were off from runs, by kind: each plan is given with the range of plans like it.

`reliability.json` holds every plan that was compared with a run, measured or published. The benchmarks that compare
write it with `--reliability`, each its own part; published numbers `python -m tests.published --write`, and
`python -m tests.published coverage` says how many cells of a system lie within the range of the others.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base.files import records
from scalebook.training.engine.rules import Link, Rule
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.answers import Range, Reliability
from scalebook.training.pricing import Profile
from scalebook.training.tracking import student_quantile

Strategy = Literal["async", "sync", "ddp", "fsdp", "peers", "split"]
Place = Literal["machine", "short", "gpus", "network"]
PLACES: Final[dict[Place, str]] = {
    "machine": "on one machine", "short": "on one machine, with gradients below 3 ms",
    "gpus": "on the GPUs of one machine", "network": "over a network",
}  # fmt: skip
SHORT_S: Final = 0.003
"""Seconds of a gradient below which waking another worker on the machine, 0.1 to 0.3 ms, takes a tenth of it."""
FEWEST: Final = 5
"""Fewest systems for a kind to have a range of its own."""
SHARE: Final = 0.9
"""Share of a kind's plans that its range holds."""
INCOMPLETE: Final = ", from an incomplete profile"


@dataclass(frozen=True)
class ComparedPlan:
    """One plan compared with a run, or with a published speed-up. `rates`: predicted / measured updates or samples a
    second; `staleness`: the same for the mean staleness, if there is any. `system`: what was measured, a model on a
    machine or a published system; "": one of the command. `complete`: whether the profile had all `missing_keys`."""

    strategy: Strategy
    place: Place
    what: str
    rates: float
    staleness: float | None = None
    system: str = ""
    complete: bool = True


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

    @cached_property
    def by_command(self) -> list[tuple[str, ComparedPlan]]:
        """All cells, each with its command, and with its system."""
        return [
            (source.command, replace(cell, system=cell.system or _without_options(source)))
            for source in self.sources
            for cell in source.cells
        ]

    @property
    def cells(self) -> list[ComparedPlan]:
        """All of them, each with its system."""
        return [cell for _, cell in self.by_command]

    def without(self, system: str) -> "Compared":
        """As if this system had never been compared."""
        return Compared(
            [PlansCompared(command, "", [cell]) for command, cell in self.by_command if cell.system != system]
        )

    def of(self, strategy: Strategy, place: Place, complete: bool = True) -> Reliability:
        """The reliability of plans of this strategy at this place; if fewer than FEWEST systems were compared, of all
        strategies there, else of all plans, which `Reliability.borrowed` says. Such a range is extended until it holds
        the kind's own plans."""
        everything = [cell for cell in self.cells if complete <= cell.complete]
        there = [cell for cell in everything if (cell.place, cell.complete) == (place, complete)]
        own = [cell for cell in there if cell.strategy == strategy]
        within = next((cells for cells in (own, there) if len(by_system(cells)) >= FEWEST), everything)
        stale = [cell for cell in own if cell.staleness is not None]
        if len(stale) < FEWEST:
            stale = [cell for cell in everything if cell.strategy == strategy and cell.staleness is not None]
        lenders = {*within}
        words = PLACES[place] + ("" if complete else INCOMPLETE)
        return Reliability(
            f"{strategy} {words}",
            holding(
                likely_range([[cell.rates for cell in cells] for cells in by_system(within)]),
                [] if within is own else [cell.rates for cell in own],
            ),
            likely_range([[cell.staleness or 0.0] for cell in stale]) if len(stale) >= FEWEST else None,
            len(own),
            [*dict.fromkeys(command for command, cell in self.by_command if cell in lenders)],
            0 if within is own else len(within),
            "" if within is own else f"all strategies {words}" if within is there else "all kinds",
        )


def by_system(cells: Sequence[ComparedPlan]) -> list[list[ComparedPlan]]:
    """The cells of each system, by strategy."""
    cells_of = defaultdict[tuple[str, str], list[ComparedPlan]](list)
    for cell in cells:
        cells_of[cell.system, cell.strategy].append(cell)
    return list(cells_of.values())


def likely_range(systems: Sequence[Sequence[float]]) -> Range:
    """The range in which a ratio of a new system lies with probability SHARE, from the ratios of each known system.

    Ratios of one system are alike, so systems count, not cells. This is the prediction interval of a random-effects
    model of logarithms (Higgins, Thompson, Spiegelhalter 2009, J. R. Stat. Soc. A 172, section 4.1). The variance of a
    new ratio has two parts: that between a system that is left out and the mean of the others, and that within a
    system. With K systems, Student's t has K - 1 degrees of freedom.
    """
    logs = [[math.log(ratio) for ratio in ratios] for ratios in systems]
    means, count = [statistics.fmean(one) for one in logs], len(logs)
    degrees = sum(map(len, logs)) - count
    within = sum((value - mean) ** 2 for one, mean in zip(logs, means, strict=True) for value in one)
    within *= (1 - statistics.fmean(1 / len(one) for one in logs)) / degrees if degrees else 0.0
    between = statistics.variance(means) * (1 + 1 / count)
    off = student_quantile((1 + SHARE) / 2, count - 1) * math.sqrt(between + within)
    center = statistics.fmean(means)
    return Range(math.exp(center - off), math.exp(center + off))


def holding(within: Range, ratios: Sequence[float]) -> Range:
    """The range, extended as little as possible to hold SHARE of the ratios."""
    outside = [ratio for ratio in ratios if not within.lowest <= ratio <= within.highest]
    outside.sort(key=lambda ratio: max(within.lowest / ratio, ratio / within.highest))
    extended = outside[: max(0, math.ceil(SHARE * len(ratios)) - (len(ratios) - len(outside)))]
    return Range(min([within.lowest, *extended]), max([within.highest, *extended]))


def missing_keys(profile: Profile, rule: Rule | WithoutServer, own_network: bool, shards: int) -> list[str]:
    """Keys that a plan over a network should have and the profile lacks, since what they say is in no other key."""
    if own_network and (profile.cores is not None or profile.network.link == Link()):
        return []  # within a machine
    node, served = profile.node, isinstance(rule, Rule)
    lacks = {
        "software": not isinstance(rule, AllReduce) and profile.software is None,
        "shard_shares": served and shards > 1 and shards not in profile.shard_shares,
        "slowdown": node is not None and node.workers > 1 and not profile.slowdown,
    }
    return [key for key, is_missing in lacks.items() if is_missing]


def reliability_of(profile: Profile, rule: Rule | WithoutServer, own_network: bool, shards: int = 1) -> Reliability:
    """The reliability of a plan of this rule. `own_network`: over the profile's own links. On a busy machine the range
    is wider by what its two measurements may be off (`Profile.doubt`)."""
    missing = missing_keys(profile, rule, own_network, shards)
    reliability = read_comparisons().of(strategy_of(rule), place_of(profile, own_network), not missing)
    rates = reliability.updates_per_s.wider(profile.doubt)
    return replace(reliability, updates_per_s=rates, missing=missing, doubt=profile.doubt)


def place_of(profile: Profile, own_network: bool) -> Place:
    """Where the workers of a plan are."""
    if own_network and profile.gpus:
        return "gpus"
    if own_network and profile.cores is not None:
        return "short" if profile.gradient_mean_s < SHORT_S else "machine"
    return "network"


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
