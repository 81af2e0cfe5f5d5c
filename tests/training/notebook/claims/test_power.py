"""Power against the whole procedure, played run by run by the functions that judge."""

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.evidence import SeedOutcome, best_of, by_others
from scalebook.training.notebook.claims.intervals import ALPHA, Amount, Confidence, ratio_interval
from scalebook.training.notebook.claims.judging import verdict
from scalebook.training.notebook.claims.looks import History, level_of
from scalebook.training.notebook.claims.power import (
    DRAWN,
    MOST_SEEDS,
    WORSE,
    Design,
    DrawnSide,
    Power,
    _pair,
    power,
    resolving,
    shares,
    spread_of,
)
from scalebook.training.search.study.trials import TrialRecord

HIGH = math.log(1.25)
Side = tuple[Mapping[int, Amount], Mapping[int, Amount]]


def against_one(seeds: int, rows: int = 1, points: int = 1, beside: int = 1) -> Design:
    """Rows that truly take as much as what all are against, and are claimed to take 1.25 times that at most."""
    sides = tuple(DrawnSide(seeds, points, 0.15) for _ in range(rows + 1))
    return Design(sides, tuple(((1 + row, 0),) for row in range(rows)), None, HIGH, beside)


def played(design: Design, trials: int, chance: random.Random) -> float:
    """How often all rows are supported."""
    supported = 0
    for _ in range(trials):
        sides = [side(drawn, chance) for drawn in design.sides]
        rows = [[interval(sides[of], sides[base]) for of, base in row if base is not None] for row in design.rows]
        claimed = [first.over(others[0]) if others else first for first, *others in rows]
        level = level_of(ALPHA, design.growths)
        supported += all(verdict(one, None, 1.25, level)[0] == "supported" for one in claimed)
    return supported / trials


def interval(these: Side, others: Side) -> Confidence:
    found = ratio_interval(these[0], others[0], (these[1], others[1]))
    assert found is not None
    return found


def side(drawn: DrawnSide, chance: random.Random) -> Side:
    space = (Dimension("learning_rate", "grid", choices=tuple(range(drawn.points))),)
    trials = [TrialRecord(point, "finished", {"learning_rate": point}) for point in range(drawn.points)]
    seen = {
        point: [
            SeedOutcome(
                Amount(math.exp(chance.gauss(drawn.level + WORSE * abs(point - drawn.points // 2), drawn.spread)))
            )
            for _ in range(drawn.seeds)
        ]
        for point in range(drawn.points)
    }
    chosen = best_of(trials, seen, True, space)
    amounts = {seed: one.amount for seed, one in enumerate(seen[chosen.number])}
    return amounts, amounts if drawn.points == 1 else dict(enumerate(by_others(trials, seen, True, space)))


OF_RATIOS = Design(tuple(DrawnSide(8, 1, 0.15) for _ in range(4)), (((1, 0), (3, 2)),), None, HIGH)


@pytest.mark.parametrize(
    "design",
    [
        against_one(5),
        against_one(8, rows=5),
        against_one(5, points=3),
        OF_RATIOS,
        replace(against_one(8), before=History((3,))),
    ],
)
def test_power_is_that_of_the_whole_procedure(design: Design) -> None:
    """Of 400 claims a share of a half has a standard error of 2.5 %; three of them, and what `shares` itself has."""
    assert shares(design)[0] == pytest.approx(played(design, 400, random.Random(1)), abs=0.08)


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_power_pairs_the_sides_that_the_interval_pairs(seeds: int) -> None:
    """Of sides that correlate, in 300 draws: the same errors and degrees of freedom."""
    chance = np.random.default_rng(1)
    common = chance.standard_normal((300, seeds))
    drawn = [common + 0.7 * chance.standard_normal((300, seeds)) for _ in range(2)]
    _, _, variance, degrees = _pair((0, 1), [(side, side) for side in drawn])
    paired = 0
    for trial in range(300):
        these, others = ({seed: Amount(math.exp(log)) for seed, log in enumerate(side[trial])} for side in drawn)
        by_interval = ratio_interval(these, others)
        assert by_interval is not None
        assert (by_interval.error**2, by_interval.degrees) == pytest.approx((variance[trial], degrees[trial]))
        paired += by_interval.paired
    assert 0 < paired < 300


def test_a_later_look_needs_more_seeds() -> None:
    first, later = against_one(5), replace(against_one(5), before=History((5,)))
    fewest, more = resolving(first), resolving(later)
    assert fewest is not None
    assert more is not None
    assert later.with_seeds(10).growths == (2.0,)
    assert fewest < more < 2 * fewest


def test_power_grows_with_seeds_and_falls_with_rows_points_and_claims() -> None:
    """An independent check of an earlier rule found 30, 69 and 93 % for one row with pairs, and 2 % for five rows."""
    assert [round(shares(against_one(seeds))[0], 1) for seeds in (3, 5, 8)] == [0.2, 0.5, 0.8]
    assert shares(against_one(3, rows=5))[0] < 0.05
    assert shares(against_one(5, points=3))[0] < shares(against_one(5))[0]
    assert shares(against_one(5, beside=8))[0] < shares(against_one(5))[0]
    assert shares(against_one(2)) == (0, 0)


def test_how_many_seeds_are_enough() -> None:
    """The fewest that are: with one fewer they are not."""
    found = power(against_one(3), 1.0, measured=False)
    assert found == Power(3, 1.0, shares(against_one(3))[0], found.enough, found.spread, False)
    assert found.spread == pytest.approx(0.15)
    assert found.enough is not None
    assert shares(against_one(found.enough))[0] >= 0.8 > shares(against_one(found.enough - 1))[0]
    assert resolving(against_one(3)) == found.enough
    assert power(against_one(3, rows=1, beside=1).with_seeds(2), 1.0, measured=False).share == 0
    at_bound = Design((DrawnSide(5, 1, 0.15), DrawnSide(5, 1, 0.15, HIGH)), (((1, 0),),), None, HIGH)
    assert resolving(at_bound) is None


def test_what_lies_outside_is_refuted() -> None:
    beyond = Design((DrawnSide(8, 1, 0.1), DrawnSide(8, 1, 0.1, math.log(2))), (((1, 0),),), None, HIGH)
    assert shares(beyond) == (0, 1)
    below = Design((DrawnSide(8, 1, 0.1), DrawnSide(8, 1, 0.1)), (((1, 0),),), HIGH, None)
    assert shares(below)[1] > 0.9


def test_the_spread_is_pooled_over_sides_with_two_runs_or_more() -> None:
    sides = [[Amount(math.exp(value)) for value in side] for side in ((1.0, 1.2, 1.4), (5.0, 5.4), (9.0,))]
    spread, measured = spread_of(sides, axis=True)
    assert spread == pytest.approx(math.sqrt((0.04 * 2 + 0.08) / 3))
    assert measured
    assert spread_of([[Amount(1)], []], axis=True) == (0.15, False)
    assert spread_of([], axis=False) == (0.05, False)


def test_power_is_told_at_once() -> None:
    """Six sides of six points, with up to 64 seeds: what is drawn at once is bounded."""
    design = Design(tuple(DrawnSide(5, 6, 0.3) for _ in range(6)), against_one(5, rows=5).rows, None, HIGH, 9)
    assert 6 * 6 * MOST_SEEDS * 100 < DRAWN
    shares(against_one(3))  # imports
    before = process_time()
    power(design, 1.0, measured=True)
    assert process_time() - before < 2
