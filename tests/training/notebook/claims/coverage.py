"""How often the intervals and verdicts of claims are right: some ten minutes.

    python -m tests.training.notebook.claims.coverage [--trials 300]

Simulates the whole procedure, from curves to the verdict, with the product's own functions. A side has runs at one to
nine learning rates; the middle one is the best, and each further one costs 15 % more. A run's cost is
log-normal about that of its rate. Its loss falls as a power of the updates and is seen only at
validations. Both sides have the same rates; the column `against` is for a side without a choice. One side truly takes
1.25 times the other, so `at_most: 1.25` is wrong, and may be called supported in 2.5 %. For a ratio of ratios four such
sides are drawn, and the second ratio is of equals. Costs are drawn from 200 quantiles, so that each curve is read once.

A fourth table is of questions (`scalebook ask`): one run at each of several rates chooses that of each side, fresh
seeds judge, and seeds are added until it is resolved. Both sides are equal, so each definite answer is wrong; a rate
twice too large costs 2 to 30 %. With `checked`, a verdict holds only if no other rate of the worse side may undo it.

The second table adds seeds until the claim is resolved: one a side after each look, or as many as the advice says. The
third has cells in which a figure is known to be off. Exit code 1 where a figure of the first or second table is out of
its bounds by more than three standard errors.
"""

import itertools
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.common import parser
from scalebook.training.asking.best_point import may_undo
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.evidence import SeedOutcome, best_of, by_others
from scalebook.training.notebook.claims.intervals import ALPHA, Amount, Confidence, crossing, ratio_interval
from scalebook.training.notebook.claims.judging import verdict
from scalebook.training.notebook.claims.looks import History, level_of
from scalebook.training.notebook.claims.power import MOST_SEEDS, Design, DrawnSide, resolving, spread_of
from scalebook.training.search.study.trials import TrialRecord

RATIO: Final = 1.25
SPREAD: Final = 0.15
"""Standard deviation of the logarithm of a run's cost."""
WORSE: Final = 1.15
"""The cost at each rate, relative to the next better one."""
QUANTILES: Final = 200
ASKED_SEEDS: Final = (3, 5, 8)
"""Seeds of each side of a question, at each look."""
SEEDS: Final = (3, 5, 8, 16)
RATES: Final = (1, 3, 9)
VALIDATED: Final = ((110, 8), (110, 32), (110, 64), (500, 64), (2000, 64))
"""Updates that the cheaper side takes, and updates between two validations."""
COVERED: Final = (0.93, 0.97)
"""Bounds of the coverage when seeds are added."""
COVERED_CHOSEN: Final = (0.93, 0.985)
"""Bounds of the coverage of a first look, at 96 %, where the seeds that judge also choose the rates: an interval that
spans two estimates is wider than it has to be, most of all with three seeds."""
WRONG: Final = 0.03
"""Bound of wrong verdicts on one side."""
WRONG_CHOSEN: Final = 0.035
"""The same where the seeds that judge also choose the rates."""
LOOKS: Final = 2_000
"""Claims for each cell of the second and third table."""


@dataclass(frozen=True)
class Cell:
    """What is simulated: the numbers of rates of both sides, and when they validate."""

    seeds: int
    rates: tuple[int, int]
    base: int
    every: int
    spread: float
    worse: float
    of_ratios: bool = False
    """Compare the ratio with another one, of 1, whose sides have as many rates."""


@dataclass(frozen=True)
class Found:
    """Shares of the trials."""

    covered: float
    wrong: float
    """Called supported, though the truth is at the bound."""
    refuted: float = 0.0
    seeds: float = 0.0
    """Seeds of a side at the last look, on average."""

    def out_of_bounds(self, trials: int, covered: tuple[float, float], wrong: float) -> bool:
        """By more than three standard errors."""
        low, high = covered
        shares = [
            (low - self.covered, low),
            (self.covered - high, high),
            (max(self.wrong, self.refuted) - wrong, wrong),
        ]
        return any(beyond > 3 * math.sqrt(share * (1 - share) / trials) for beyond, share in shares)


@dataclass(frozen=True)
class Adding:
    """A claim whose seeds are added until it is resolved. `advised`: as many as the advice says, else one a side."""

    first: int
    advised: bool
    most: int
    spread: float = 0.15
    common: float = 0.0
    """The share of the variance that runs with the same seed have in common."""


def add_seeds(cell: Adding, trials: int, chance: random.Random) -> Found:
    """Look at `trials` claims until each is resolved, or until more seeds are needed than `most`."""
    covered = supported = refuted = seeds = 0
    for _ in range(trials):
        common, own = math.sqrt(cell.common), math.sqrt(1 - cell.common)
        drawn: list[tuple[float, float]] = []
        before, count = History(), cell.first
        while True:
            while len(drawn) < count:
                both = chance.gauss(0, 1)
                logs = (cell.spread * (common * both + own * chance.gauss(0, 1)) for _ in range(2))
                drawn.append((RATIO * math.exp(next(logs)), math.exp(next(logs))))
            growths = (*before.growths, count / before.seeds[-1]) if before.seeds else ()
            before = History((*before.seeds, count), growths)
            these, others = ({seed: Amount(pair[side]) for seed, pair in enumerate(drawn)} for side in (0, 1))
            interval, level = ratio_interval(these, others), level_of(ALPHA, growths)
            assert interval is not None
            outcome = verdict(interval, None, RATIO, level)[0]
            more = count + 1 if not cell.advised else _advised(interval, (these, others), before)
            if outcome != "not resolved" or not more or more > cell.most:
                break
            count = more
        low, high = interval.ends(1 - level)
        covered += low <= RATIO <= high
        supported += outcome == "supported"
        refuted += outcome == "refuted"
        seeds += count
    return Found(covered / trials, supported / trials, refuted / trials, seeds / trials)


def _advised(interval: Confidence, sides: Sequence[Mapping[int, Amount]], before: History) -> int | None:
    """The seeds that would resolve it, by the product; from rounded figures, so that it is asked the same again."""
    spread, _ = spread_of([[*side.values()] for side in sides], axis=True)
    count = before.seeds[-1]
    drawn = (DrawnSide(count, 1, round(spread, 2)), DrawnSide(count, 1, round(spread, 2), round(interval.middle, 2)))
    if abs(round(interval.middle, 2) - round(math.log(RATIO), 2)) < 0.02:
        return None  # more than MOST_SEEDS
    rounded = replace(before, growths=tuple(round(growth, 1) for growth in before.growths))
    return resolving(Design(drawn, (((1, 0),),), None, round(math.log(RATIO), 2), before=rounded))


def skewed(seeds: int, spreads: tuple[float, float], trials: int, chance: random.Random) -> Found:
    """One look at sides whose logarithms have an exponential distribution, with different spreads."""
    covered = supported = refuted = 0
    for _ in range(trials):
        these, others = (
            {seed: Amount(times * math.exp(spread * (chance.expovariate(1) - 1))) for seed in range(seeds)}
            for times, spread in zip((RATIO, 1.0), spreads, strict=True)
        )
        interval = ratio_interval(these, others)
        assert interval is not None
        level = level_of(ALPHA)
        low, high = interval.ends(1 - level)
        covered += low <= RATIO <= high
        outcome = verdict(interval, None, RATIO, level)[0]
        supported += outcome == "supported"
        refuted += outcome == "refuted"
    return Found(covered / trials, supported / trials, refuted / trials, seeds)


def off_centre(seeds: int, spread: float, trials: int, chance: random.Random) -> tuple[float, float]:
    """How far the point estimate is off on a flat optimum, nine rates 2 % apart against one: as it is, and by the
    rates that all seeds choose."""
    cell = Cell(seeds, (9, 1), 2000, 8, spread, 1.02)
    recorded = [_recorded(cell, rates, times) for rates, times in zip(cell.rates, (RATIO, 1.0), strict=True)]
    intervals = [_ratio(recorded, seeds, chance) for _ in range(trials)]
    centred, by_all = (
        statistics.fmean(value) for value in zip(*((i.middle, i.estimate) for i in intervals), strict=True)
    )
    return math.exp(centred) / RATIO - 1, math.exp(by_all) / RATIO - 1


def simulate(cell: Cell, trials: int, chance: random.Random) -> Found:
    """Simulate `trials` claims."""
    pairs = [(RATIO, 1.0), *([(1.0, 1.0)] if cell.of_ratios else [])]
    recorded = [
        [_recorded(cell, rates, times) for rates, times in zip(cell.rates, pair, strict=True)] for pair in pairs
    ]
    covered = wrong = 0
    level = level_of(ALPHA)
    for _ in range(trials):
        interval, *others = (_ratio(sides, cell.seeds, chance) for sides in recorded)
        for other in others:
            interval = interval.over(other)
        low, high = interval.ends(1 - level)
        covered += low <= RATIO <= high
        wrong += verdict(interval, None, RATIO, level)[0] == "supported"
    return Found(covered / trials, wrong / trials)


def _ratio(sides: Sequence[Sequence[Sequence[Amount]]], seeds: int, chance: random.Random) -> Confidence:
    (mine, out), (theirs, their_out) = (_side(recorded, seeds, chance) for recorded in sides)
    interval = ratio_interval(mine, theirs, (out, their_out))
    assert interval is not None
    return interval


def _recorded(cell: Cell, rates: int, times: float) -> list[list[Amount]]:
    """By rate, the recorded cost of a run, by quantile of its true cost."""
    normal = statistics.NormalDist()
    by_rate = []
    for rate in range(rates):
        mean = cell.base * times * cell.worse ** abs(rate - rates // 2)
        costs = [mean * math.exp(cell.spread * normal.inv_cdf((i + 0.5) / QUANTILES)) for i in range(QUANTILES)]
        validated = [float(cell.every * i) for i in range(1, math.ceil(max(costs) / cell.every) + 3)]
        amounts = [crossing(validated, [(place / cost) ** -0.5 for place in validated], 1.0, True) for cost in costs]
        by_rate.append([amount for amount in amounts if amount is not None])
    return by_rate


def _side(
    recorded: Sequence[Sequence[Amount]], seeds: int, chance: random.Random
) -> tuple[Mapping[int, Amount], Mapping[int, Amount]]:
    """By seed, the cost at the point that all seeds choose, and at the one that the other seeds choose."""
    space = (Dimension("learning_rate", "grid", choices=tuple(range(len(recorded)))),)
    trials = [TrialRecord(rate, "finished", {"learning_rate": rate}) for rate in range(len(recorded))]
    runs = {rate: [SeedOutcome(chance.choice(amounts)) for _ in range(seeds)] for rate, amounts in enumerate(recorded)}
    chosen = best_of(trials, runs, True, space)
    amounts = {seed: one.amount for seed, one in enumerate(runs[chosen.number])}
    if len(trials) == 1:
        return amounts, amounts
    return amounts, dict(enumerate(by_others(trials, runs, True, space)))


def asked(rates: int, spread: float, steep: float, checked: bool, chance: random.Random) -> bool:
    """Whether a question about two equal sides has a definite answer. `steep`: the logarithm of the cost of a rate that
    is twice too large or small."""
    step, offset = math.log2({3: 4.0, 5: 2.5}.get(rates, 2.0)), chance.uniform(-0.5, 0.5)
    costs = [steep * ((place - rates // 2 + offset) * step) ** 2 for place in range(rates)]
    searched = [[chance.gauss(cost, spread) for cost in costs] for _ in range(2)]
    chosen = [min(range(rates), key=one.__getitem__) for one in searched]
    logs: list[list[float]] = [[], []]
    growths: tuple[float, ...] = ()
    for seeds in ASKED_SEEDS:
        growths = (*growths, seeds / len(logs[0])) if logs[0] else ()
        for side in (0, 1):
            logs[side] += [chance.gauss(costs[chosen[side]], spread) for _ in range(seeds - len(logs[side]))]
        these, others = ({seed: Amount(math.exp(log)) for seed, log in enumerate(one)} for one in logs)
        interval = ratio_interval(these, others)
        assert interval is not None
        outcome = verdict(interval, None, 1.0, level_of(ALPHA, growths))[0]
        worse = 1 if outcome == "supported" else 0
        noise = math.sqrt(statistics.fmean(map(statistics.variance, logs)))
        doubt = checked and any(
            may_undo(log, statistics.fmean(logs[worse]), noise, abs(interval.middle))
            for place, log in enumerate(searched[worse])
            if place != chosen[worse]
        )
        if outcome != "not resolved" and not doubt:
            return True
    return False


def _print_asked(trials: int, chance: random.Random) -> None:
    print("\n| rates | spread | wrong, for rates that cost 2 %, 5 %, 10 %, 20 %, 30 % | checked |")
    print("|---|---:|---|---|")
    for rates, spread in itertools.product((3, 5, 7), (0.05, 0.1, 0.15)):
        shares = [
            [sum(asked(rates, spread, steep, checked, chance) for _ in range(trials // 2)) / (trials // 2) for steep in
             (0.02, 0.05, 0.1, 0.18, 0.26)] for checked in (False, True)
        ]  # fmt: skip
        print(
            f"| {rates} | {spread} | {' | '.join(', '.join(f'{one:.3f}' for one in row) for row in shares)} |",
            flush=True,
        )


def main() -> int:
    """Print the tables, a row for each cell."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=500, help="claims a cell")
    options.add_argument("--looks", type=int, default=LOOKS, help="claims a cell of looks, and of known limits")
    given = options.parse_args()
    chance = random.Random(1)
    out = _print_choices(given.trials, chance) + _print_looks(given.looks, chance)
    _print_limits(given.looks, chance)
    _print_asked(given.looks, chance)
    print(f"\n{out} cells are out of their bounds." if out else "\nAll cells are within their bounds.")
    return 1 if out else 0


def _print_choices(trials: int, chance: random.Random) -> int:
    """Rates chosen by the seeds that judge; how many cells are out of bounds."""
    print('| of | seeds | rates | updates | validated every | coverage | wrong "supported" |')
    print("|---|---:|---:|---:|---:|---:|---:|")
    kinds = itertools.product((False, True), SEEDS, [*((count, count) for count in RATES), (RATES[-1], 1)], VALIDATED)
    out = 0
    for of_ratios, seeds, rates, (base, every) in kinds:
        cell = Cell(seeds, rates, base, every, SPREAD, WORSE, of_ratios)
        result = simulate(cell, trials, chance)
        out += result.out_of_bounds(trials, COVERED_CHOSEN, WRONG_CHOSEN)
        print(
            f"| {'a ratio of ratios' if of_ratios else 'a ratio'} | {seeds} | {rates[0]} against {rates[1]} | {base} | "
            f"{every} | {result.covered:.3f} | {result.wrong:.3f} |",
            flush=True,
        )
    return out


def _print_looks(trials: int, chance: random.Random) -> int:
    print(
        '\n| seeds added | first look | variance in common | coverage | wrong "supported" | wrong "refuted" | seeds |'
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    out = 0
    for advised, first, common in itertools.product((False, True), (3, 5, 8), (0.0, 0.5)):
        result = add_seeds(Adding(first, advised, MOST_SEEDS if advised else 16, common=common), trials, chance)
        out += result.out_of_bounds(trials, COVERED, WRONG)
        how = f"as advised, to {MOST_SEEDS}" if advised else "one by one, to 16"
        print(
            f"| {how} | {first} | {common:g} | {result.covered:.3f} | {result.wrong:.3f} | {result.refuted:.3f} | "
            f"{result.seeds:.1f} |",
            flush=True,
        )
    return out


def _print_limits(trials: int, chance: random.Random) -> None:
    print('\n| exponential logs, spreads | seeds | coverage | wrong "supported" | wrong "refuted" |')
    print("|---|---:|---:|---:|---:|")
    for spreads, seeds in itertools.product(((0.3, 0.3), (0.3, 0.05), (0.05, 0.3)), (3, 8, 16)):
        result = skewed(seeds, spreads, trials, chance)
        print(
            f"| {spreads[0]} against {spreads[1]} | {seeds} | {result.covered:.3f} | {result.wrong:.3f} | "
            f"{result.refuted:.3f} |",
            flush=True,
        )
    print("\n| nine rates 2 % apart against one, spread | seeds | point estimate off by | by all seeds' choice |")
    print("|---|---:|---:|---:|")
    for spread, seeds in itertools.product((0.15, 0.3), SEEDS):
        centred, by_all = off_centre(seeds, spread, min(trials, 1000), chance)
        print(f"| {spread} | {seeds} | {100 * centred:+.1f} % | {100 * by_all:+.1f} % |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
