"""How often the intervals and verdicts of claims are right: `python -m benchmarks.coverage`, a minute or two.

Simulates the whole procedure, from curves to the verdict, with the product's own functions. A side has runs at one to
nine learning rates; the middle one is the best, and each further one costs 15 % more (`--worse`). A run's cost is
log-normal about that of its rate, with `--spread`. Its loss falls as a power of the updates and is seen only at
validations. Both sides have the same rates; the column `against` is for a side without a choice. One side truly takes
1.25 times the other, so `at_most: 1.25` is wrong, and may be called supported in 2.5 %. For a ratio of ratios four such
sides are drawn, and the second ratio is of equals. Costs are drawn from 200 quantiles, so that each curve is read once.
"""

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.evidence import SeedOutcome, best_of, by_others
from scalebook.training.notebook.claims.intervals import Amount, Confidence, crossing, ratio_interval
from scalebook.training.notebook.claims.judging import verdict
from scalebook.training.search.study.trials import TrialRecord

RATIO: Final = 1.25
QUANTILES: Final = 200
SEEDS: Final = (3, 5, 8, 16)
RATES: Final = (1, 3, 9)
VALIDATED: Final = ((110, 8), (110, 32), (110, 64), (500, 64), (2000, 64))
"""Updates that the cheaper side takes, and updates between two validations."""


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


def simulate(cell: Cell, trials: int, chance: random.Random) -> Found:
    """Simulate `trials` claims."""
    pairs = [(RATIO, 1.0), *([(1.0, 1.0)] if cell.of_ratios else [])]
    recorded = [
        [_recorded(cell, rates, times) for rates, times in zip(cell.rates, pair, strict=True)] for pair in pairs
    ]
    covered = wrong = 0
    for _ in range(trials):
        interval, *others = (_ratio(sides, cell.seeds, chance) for sides in recorded)
        for other in others:
            interval = interval.over(other)
        covered += interval.low <= RATIO <= interval.high
        wrong += verdict(interval, None, RATIO)[0] == "supported"
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


def main() -> None:
    """Print the table, a row for each number of seeds, rates and validations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500, help="claims a cell")
    parser.add_argument("--spread", type=float, default=0.15, help="standard deviation of a run's log cost")
    parser.add_argument("--worse", type=float, default=1.15, help="cost of each rate relative to the next better one")
    options = parser.parse_args()
    chance = random.Random(1)
    print('| of | seeds | rates | updates | validated every | coverage | wrong "supported" |')
    print("|---|---:|---:|---:|---:|---:|---:|")
    kinds = itertools.product((False, True), SEEDS, [*((count, count) for count in RATES), (RATES[-1], 1)], VALIDATED)
    for of_ratios, seeds, rates, (base, every) in kinds:
        cell = Cell(seeds, rates, base, every, options.spread, options.worse, of_ratios)
        result = simulate(cell, options.trials, chance)
        print(
            f"| {'a ratio of ratios' if of_ratios else 'a ratio'} | {seeds} | {rates[0]} against {rates[1]} | {base} | "
            f"{every} | {result.covered:.3f} | {result.wrong:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
