import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest

from scalebook.training.notebook.claims.intervals import (
    PAIRED_FROM,
    PAIRED_FROM_BEFORE,
    Amount,
    crossing,
    mean_interval,
    ratio_interval,
)
from scalebook.training.notebook.claims.judging import verdict


def amounts(*values: float) -> list[Amount]:
    return [Amount(value) for value in values]


def seeds(*values: float, first: int = 1) -> dict[int, Amount]:
    return {first + i: Amount(value) for i, value in enumerate(values)}


def test_the_interval_of_a_mean_is_student_s() -> None:
    """1, 2, 3: s = 1, and t = 4.302653 with two degrees of freedom."""
    found = mean_interval(amounts(1, 2, 3))
    assert found is not None
    assert (found.value, found.n) == (2, 3)
    assert (found.low, found.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), rel=1e-6)


def test_a_ratio_of_pairs_is_of_their_logs() -> None:
    """Ratios e, e^2, e^3 whatever the seeds' own level: the same interval as above, in the exponent."""
    levels = {1: 1e10, 2: 5e20, 3: 7e-30}
    these = {seed: Amount(math.exp(seed) * level) for seed, level in levels.items()}
    others = {seed: Amount(level) for seed, level in levels.items()}
    found = ratio_interval(these, others)
    assert found is not None
    assert (found.paired, found.n) == (True, 3)
    half = 4.302653 / 3**0.5
    assert found.value == pytest.approx(math.exp(2))
    assert (found.low, found.high) == pytest.approx((math.exp(2 - half), math.exp(2 + half)), rel=1e-6)


def test_pairs_that_do_not_rise_and_fall_together_are_not_taken_as_pairs() -> None:
    """Student's t of two degrees of freedom is 4.30, of four 2.78; so little says a third of three pairs."""
    these, others = seeds(1, 2, 3), seeds(3, 1, 2)
    found, apart = ratio_interval(these, others), ratio_interval(these, seeds(3, 1, 2, first=9))
    assert found == apart
    assert found is not None
    assert not found.paired
    assert found.degrees == pytest.approx(4)


def test_pairs_are_those_that_correlate_as_one_in_twenty_unrelated_ones_do() -> None:
    """Of five pairs one in twenty unrelated ones has a correlation of 0.805 or more, and one in fifty 0.895."""
    theirs = {0.80: (1, 3, 2, 5, 4), 0.849: (1, 2, 4, 3, 4), 0.977: (1, 2, 3, 4, 4.1)}
    found = {}
    for correlation, others in theirs.items():
        assert statistics.correlation((1, 2, 3, 4, 5), others) == pytest.approx(correlation, abs=0.001)
        mine, yours = (seeds(*(math.exp(log) for log in side)) for side in ((1, 2, 3, 4, 5), others))
        now, before = (ratio_interval(mine, yours, paired_from=share) for share in (PAIRED_FROM, PAIRED_FROM_BEFORE))
        assert now is not None
        assert before is not None
        found[correlation] = (now.paired, before.paired)
    assert found == {0.80: (False, False), 0.849: (True, False), 0.977: (True, True)}


def test_pairs_that_fall_as_the_others_rise_are_none() -> None:
    """Their correlation is -1, or beyond it by rounding."""
    found = ratio_interval(seeds(1, 2, 4), seeds(4, 2, 1))
    assert found is not None
    assert not found.paired
    assert found.degrees == pytest.approx(4)


def test_the_interval_spans_what_seeds_say_that_do_not_choose() -> None:
    """Choosing by all seeds gives a ratio of 2, choosing without each in turn 3: from 2's lower to 3's upper end, and
    the point between them."""
    these, others = seeds(2, 2.2, 1.8), seeds(1, 1, 1, first=9)
    plain = ratio_interval(these, others)
    wider = ratio_interval(these, others, (seeds(*(1.5 * of.value for of in these.values())), others))
    assert plain is not None
    assert wider is not None
    assert (wider.value, wider.low, wider.high) == pytest.approx((plain.value * 1.5**0.5, plain.low, 1.5 * plain.high))
    assert replace(wider, centred=False).value == pytest.approx(plain.value)


def test_a_first_validation_at_the_target_opens_the_other_end() -> None:
    these = {**seeds(1, 2), 3: Amount(3, at_once=True)}
    above, below = ratio_interval(these, seeds(1, 1, 2)), ratio_interval(seeds(1, 1, 2), these)
    assert above is not None
    assert below is not None
    assert (above.low, below.high) == (0, math.inf)
    assert above.high < math.inf
    assert below.low > 0


def test_a_ratio_without_pairs_is_welch_s() -> None:
    """Logs 1, 2, 3 and 0, 0, 0 apart by e: variances 1/3 and 0, so two degrees of freedom; then equal ones: four."""
    found = ratio_interval(seeds(*(math.exp(i) for i in (1, 2, 3))), seeds(1, 1, 1, first=50))
    assert found is not None
    assert (found.paired, found.n) == (False, 3)
    assert found.high == pytest.approx(math.exp(2 + 4.302653 / 3**0.5), rel=1e-6)
    both = ratio_interval(seeds(*(math.exp(i) for i in (1, 2, 3))), seeds(*(math.exp(i) for i in (1, 2, 3)), first=50))
    assert both is not None
    assert (both.value, both.high) == pytest.approx((1, math.exp(2.776445 * (2 / 3) ** 0.5)), rel=1e-6)


def test_a_ratio_of_ratios_is_of_four_means() -> None:
    """Logs 1, 2, 3 on each of four sides, apart by seed: variances 1/3 each, so an error of (4/3)^1/2 and 8 degrees."""
    sides = [seeds(*(math.exp(i) for i in (1, 2, 3)), first=10 * side) for side in range(4)]
    one, other = ratio_interval(sides[0], sides[1]), ratio_interval(sides[2], sides[3])
    assert one is not None
    assert other is not None
    found = one.over(other)
    assert (found.n, found.paired) == (3, False)
    assert found.value == pytest.approx(1)
    assert found.degrees == pytest.approx(8)
    assert found.high == pytest.approx(math.exp(2.306004 * (4 / 3) ** 0.5), rel=1e-6)


def test_a_ratio_of_ratios_spans_both_ways_to_choose_and_is_open_where_one_of_them_is() -> None:
    these, others = seeds(4, 4, 4), seeds(1, 1, 1, first=9)
    held = ratio_interval(these, others, (seeds(6, 6, 6), others))
    two = ratio_interval(seeds(2, 2, 2), others)
    missed = ratio_interval({**these, 3: Amount(4, censored=True)}, others)
    assert held is not None
    assert two is not None
    assert missed is not None
    assert (held.over(two).low, held.over(two).high) == pytest.approx((2, 3))
    assert (two.over(held).low, two.over(held).high) == pytest.approx((1 / 3, 1 / 2))
    assert (missed.over(two).low, missed.over(two).high) == pytest.approx((2, math.inf))
    assert (two.over(missed).low, two.over(missed).high) == pytest.approx((0, 1 / 2))


def test_no_interval_without_three_seeds_or_of_what_has_no_logarithm() -> None:
    assert mean_interval(amounts(1, 2)) is None
    assert ratio_interval(seeds(1, 2), seeds(1, 2)) is None
    assert ratio_interval(seeds(1, 2, 3), seeds(1, 2, first=9)) is None
    assert ratio_interval(seeds(1, 0, 2), seeds(1, 2, 3)) is None


def test_a_missed_target_leaves_an_end_open() -> None:
    """The end that is left is that of the amounts until the run's end, which the true ones are not below."""
    missed = [*amounts(1, 2), Amount(3, censored=True)]
    found, whole = mean_interval(missed), mean_interval(amounts(1, 2, 3))
    assert found is not None
    assert whole is not None
    assert (found.low, found.high) == (whole.low, math.inf)
    these, others = dict(enumerate(missed)), dict(enumerate(amounts(1, 1, 2)))
    above, below, neither = (
        ratio_interval(these, others), ratio_interval(others, these), ratio_interval(these, these),
    )  # fmt: skip
    plain = ratio_interval(dict(enumerate(amounts(1, 2, 3))), others)
    assert above is not None
    assert below is not None
    assert neither is not None
    assert plain is not None
    assert above.low == pytest.approx(plain.low)
    assert above.high == math.inf
    assert below.low == 0
    assert below.high == pytest.approx(1 / plain.low)
    assert (neither.low, neither.high) == (0, math.inf)


def test_nineteen_in_twenty_intervals_hold_the_true_ratio() -> None:
    """Log-normal amounts, five seeds, of which a part is common to both sides: 2,000 times, within 3 sigma."""
    rng, held = random.Random(1), 0
    for _ in range(2000):
        level = [rng.gauss(0, 1) for _ in range(5)]
        these = seeds(*(math.exp(of + math.log(1.5) + rng.gauss(0, 0.3)) for of in level))
        others = seeds(*(math.exp(of + rng.gauss(0, 0.3)) for of in level))
        found = ratio_interval(these, others)
        assert found is not None
        held += found.low <= 1.5 <= found.high
    assert abs(held / 2000 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 2000)


@pytest.mark.parametrize(
    ("values", "at_least", "at_most", "said"),
    [
        ((1.0, 1.01, 1.02), None, 1.25, "supported"),
        ((1.0, 1.01, 1.02), 1.25, None, "refuted"),
        ((1.0, 1.01, 1.02), 0.8, 1.25, "supported"),
        ((1.0, 2.0, 3.0), None, 1.25, "not resolved"),
        ((1.0, 2.0, 3.0), 0.8, 1.25, "not resolved"),
        ((9.0, 9.1, 9.2), None, 1.25, "refuted"),
        ((9.0, 9.1, 9.2), 2, None, "supported"),
        ((0.1, 0.11, 0.12), 0.8, 1.25, "refuted"),
    ],
)
def test_the_verdict_is_where_the_interval_lies(
    values: tuple[float, ...], at_least: float | None, at_most: float | None, said: str
) -> None:
    found = mean_interval(amounts(*values))
    assert found is not None
    assert verdict(found, at_least, at_most)[0] == said


def test_what_takes_as_long_is_not_sooner() -> None:
    """Identical runs: an interval without width, at the bound."""
    found = ratio_interval(seeds(5, 6, 7), seeds(5, 6, 7))
    assert found is not None
    assert (found.low, found.high) == (1, 1)
    assert verdict(found, None, 1.0) == ("not resolved", 1.0)
    assert verdict(found, 1.0, None) == ("not resolved", 1.0)
    assert verdict(found, None, 1.25) == ("supported", 0.0)


def test_the_chance_of_a_verdict_is_that_of_the_interval_that_just_has_it() -> None:
    found = mean_interval(amounts(1, 1.5, 3))
    assert found is not None
    said, chance = verdict(found, None, 9.0)
    assert said == "supported"
    assert found.ends(1 - chance)[1] == pytest.approx(9)
    assert verdict(found, None, found.high)[1] == pytest.approx(0.05)


CURVES: dict[str, Callable[[float], float]] = {
    "power": lambda x: x**-0.5,
    "shallow power": lambda x: x**-0.3,
    "exponential to a floor": lambda x: 0.5 + 1.8 * 3.6**-x,
    "exponential": lambda x: 2.3 * 2.3**-x,
    "logarithm": lambda x: 1 - 0.4 * math.log(x),
}
"""Each is 1 at 1."""


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("base", "every"), [(110, 8), (110, 32), (160, 64), (500, 64), (2000, 8)])
def test_between_validations_what_it_took_is_within_a_percent(name: str, base: float, every: int) -> None:
    """Rounded up to a validation these are up to 16 % too long."""
    at = [float(every * i) for i in range(1, 400)]
    found = crossing(at, [CURVES[name](place / base) for place in at], 1.0, True)
    assert found is not None
    assert found.value == pytest.approx(base, rel=0.01)
    rising = crossing(at, [-CURVES[name](place / base) for place in at], -1.0, False)
    assert rising == found


def test_a_worse_validation_or_one_that_failed_is_passed_over() -> None:
    """The best so far: 4, 3, 2, 1 at equal steps of the logarithm; the target lies in the middle of the last."""
    found = crossing([1, 2, 3, 4, 6, 8], [4, 3, math.nan, 2, 9, 1], 1.5, True)
    assert found is not None
    assert found.value == pytest.approx(4 * 2**0.5)


def test_at_a_validation_at_once_and_never() -> None:
    assert crossing([10, 20, 30], [3, 2, 1], 2, True) == Amount(20)
    assert crossing([10, 20, 30], [1, 2, 1], 2, True) == Amount(10, at_once=True)
    assert crossing([10, 20, 30], [3, 2, 2], 1, True) == Amount(30, censored=True)
    assert crossing([10, 20], [math.inf, 1], 2, True) == Amount(20)
    assert crossing([], [], 1, True) is None


def test_an_axis_that_begins_at_zero_has_no_logarithm() -> None:
    """Bytes of one process: what is between 0 and 0 is 0."""
    assert crossing([0, 0, 0], [3, 2, 1], 1.5, True) == Amount(0)
