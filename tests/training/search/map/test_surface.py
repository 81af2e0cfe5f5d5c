import itertools

import numpy as np
import pytest

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.search.map.scales import scale
from scalebook.training.search.map.surface import CELLS, Array, field, iso_lines, ridge, wall

BATCH = scale(Dimension("batch_size", "powers_of_two", 16, 1024))
RATE = scale(Dimension("learning_rate", "log_uniform", 0.001, 1.0))
NONE = np.zeros((0, 2))


def grid(count: int = 5) -> Array:
    ticks = np.linspace(0, 1, count)
    return np.array(list(itertools.product(ticks, ticks)))


def test_a_plane_is_interpolated_exactly() -> None:
    at = grid()
    found = field(at, 0.2 + 0.3 * at[:, 0] + 0.4 * at[:, 1], NONE)
    assert found is not None
    expected = 0.2 + 0.3 * found.x[None, :] + 0.4 * found.y[:, None]
    assert not np.isnan(found.shade).any()
    assert np.abs(found.shade - expected).max() < 1e-6


def test_nothing_is_said_beyond_the_trials() -> None:
    at = grid() * 0.5
    found = field(at, at[:, 0], NONE)
    assert found is not None
    assert np.isnan(found.shade[:, found.x > 0.51]).all()
    assert not np.isnan(found.shade[np.ix_(found.y < 0.49, found.x < 0.49)]).any()


def test_a_wide_gap_is_left_out() -> None:
    left = np.array(list(itertools.product(np.linspace(0, 0.2, 9), np.linspace(0, 1, 30))))
    right = left + np.array([0.8, 0.0])
    at = np.concatenate([left, right])
    found = field(at, at[:, 0], NONE)
    assert found is not None
    assert np.isnan(found.shade[:, (found.x > 0.4) & (found.x < 0.6)]).all()


def test_where_trials_diverged_there_is_no_field() -> None:
    at = grid(9)
    diverged = at[:, 1] > 0.7
    around = np.concatenate([at[~diverged], [[0.0, 1.0], [1.0, 1.0]]])  # two that happened to finish
    found = field(around, np.ones(len(around)), at[diverged & (at[:, 0] > 0.1) & (at[:, 0] < 0.9)])
    assert found is not None
    middle = found.shade[:, CELLS // 2]
    assert np.isnan(middle[found.y > 0.75]).all()
    assert not np.isnan(middle[found.y < 0.55]).any()


def test_trials_at_one_place_count_as_their_mean() -> None:
    at = np.concatenate([grid(), grid()])
    found = field(at, np.concatenate([np.zeros(25), np.ones(25)]), NONE)
    assert found is not None
    assert np.nanmax(np.abs(found.shade - 0.5)) < 1e-9


def test_a_field_never_leaves_the_range_of_its_trials() -> None:
    rng = np.random.default_rng(1)
    found = field(rng.random((300, 2)), rng.random(300), NONE)
    assert found is not None
    assert np.nanmin(found.shade) >= 0.0
    assert np.nanmax(found.shade) <= 1.0


@pytest.mark.parametrize("at", [[(0.1, 0.2)], [(0.1, 0.2)] * 5, [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.2, 0.2)]])
def test_trials_that_span_no_area_have_no_field(at: list[tuple[float, float]]) -> None:
    assert field(np.array(at), np.ones(len(at)), NONE) is None


def test_the_ridge_takes_the_best_of_each_column() -> None:
    at = np.array([(0.0, 0.1), (0.0, 0.5), (0.5, 0.3), (1.0, 0.9), (1.0, 0.2)])
    shade, none = np.array([0.2, 0.8, 0.1, 0.3, 0.4]), np.zeros((0, 2))
    assert ridge(at, shade, none, [0.0, 0.5, 1.0]) == [1, 2, 4]
    assert ridge(at, shade, none, None, bins=1) == [1]


def test_the_ridge_leaves_out_a_column_of_which_the_pruner_left_one_trial() -> None:
    """Its only finished trial was compared with none at its end: as a part of the ridge it would look like the best."""
    at = np.array([(0.0, 0.1), (0.0, 0.5), (0.5, 0.3), (1.0, 0.9), (1.0, 0.2)])
    shade, pruned = np.array([0.2, 0.8, 0.1, 0.3, 0.4]), np.array([(0.5, 0.6), (1.0, 0.6)])
    assert ridge(at, shade, pruned, [0.0, 0.5, 1.0]) == [1, 4]
    assert ridge(at, shade, pruned, None, bins=3) == [1, 4]


def test_the_wall_stands_between_what_fits_and_what_does_not() -> None:
    assert wall([0.1, 0.5], [0.7, 0.9]) == pytest.approx(0.6)
    assert wall([0.1, 0.5], []) is None
    assert wall([], [0.7]) == 0.7
    assert wall([0.1, 0.9], [0.7]) is None, "some that is larger fits: no edge"
    assert wall([0.1, 0.8], [0.7, 0.9]) == pytest.approx(0.85)


def test_without_a_rule_constant_rate_over_batch_rises_with_the_batch() -> None:
    found = iso_lines(BATCH, RATE, "none", 256)
    assert [one.quotient for one in found] == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2])
    one = found[1]
    assert RATE.value(one.y[0]) / BATCH.value(one.x[0]) == pytest.approx(1e-4)
    assert RATE.value(one.y[1]) / BATCH.value(one.x[1]) == pytest.approx(1e-4)


def test_a_linear_rule_makes_them_level_and_a_square_root_halves_their_slope() -> None:
    for one in iso_lines(BATCH, RATE, "linear", 256):
        assert one.y[0] == pytest.approx(one.y[1])
        assert RATE.value(one.y[0]) / 256 == pytest.approx(one.quotient)
    one = iso_lines(BATCH, RATE, "sqrt", 256)[0]
    sizes, rates = [BATCH.value(x) for x in one.x], [RATE.value(y) for y in one.y]
    assert rates[1] / rates[0] == pytest.approx((sizes[1] / sizes[0]) ** 0.5)


def test_they_are_only_straight_on_logarithmic_axes() -> None:
    assert iso_lines(scale(Dimension("batch_size", "int", 16, 64)), RATE, "none", 256) == []
