"""Loss curves that differ by chance are not told apart, those that differ in one direction are."""

import random

import pytest

from benchmarks.apart import corrected, p_value, shortened, statistics_of


def cells(count: int, shift: float, seed: int = 1) -> list[list[list[float]]]:
    draw = random.Random(seed)

    def pair() -> tuple[list[float], list[float]]:
        first = [1 / (1 + step) + draw.gauss(0, 0.1) for step in range(40)]
        return first, [1 / (1 + step) + shift + draw.gauss(0, 0.1) for step in range(44)]

    return [shortened([pair() for _ in range(5)]) for _ in range(count)]


def test_parts_are_of_as_many_gradients_as_all_have() -> None:
    pairs = [([0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 5.0, 5.0, 9.0]), ([1.0] * 6, [1.0] * 4)]
    assert shortened(pairs, points=2) == [[1.0, 3.0], [0.0, 0.0]]


def test_one_cell_of_five_seeds_has_no_p_below_a_sixteenth() -> None:
    (far,) = cells(1, shift=10.0)
    assert len(statistics_of(far)) == 32
    assert p_value([far]) == pytest.approx(2 / 32)


def test_several_cells_are_told_apart_where_the_difference_has_a_direction() -> None:
    assert p_value(cells(6, shift=0.05)) < 0.01
    assert sum(p_value(cells(6, shift=0.0, seed=seed)) < 0.05 for seed in range(20)) <= 3


def test_holms_correction() -> None:
    assert corrected({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
