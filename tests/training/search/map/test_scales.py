import pytest

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.search.map.scales import can_be_axis, scale

BATCH = Dimension("batch_size", "powers_of_two", 16, 1024)
RATE = Dimension("learning_rate", "log_uniform", 0.001, 1.0)


def test_a_logarithmic_range_is_spread_by_its_logarithm() -> None:
    across = scale(RATE)
    assert across.position(0.001) == 0.0
    assert across.position(1.0) == 1.0
    assert across.position(0.1) == pytest.approx(2 / 3)
    assert across.value(across.position(0.02)) == pytest.approx(0.02)


def test_powers_of_two_are_evenly_spaced_and_named_by_themselves() -> None:
    ticks = scale(BATCH).ticks()
    assert [label for _, label in ticks] == ["16", "32", "64", "128", "256", "512", "1024"]
    assert [at for at, _ in ticks] == pytest.approx([i / 6 for i in range(7)])


def test_many_powers_of_two_are_not_all_written() -> None:
    labels = [label for _, label in scale(Dimension("batch_size", "powers_of_two", 1, 65536)).ticks()]
    assert labels == ["1", "4", "16", "64", "256", "1024", "4096", "16384", "65536"]


def test_a_rate_is_marked_at_round_figures() -> None:
    assert [label for _, label in scale(RATE).ticks()] == ["0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"]


def test_a_linear_range_is_marked_at_round_steps() -> None:
    across = scale(Dimension("model.dropout", "uniform", 0.0, 0.5))
    assert [label for _, label in across.ticks()] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]
    assert across.position(0.25) == 0.5


def test_a_wide_grid_is_logarithmic_a_narrow_one_is_not() -> None:
    assert scale(Dimension("learning_rate", "grid", choices=(0.01, 0.1, 1.0))).position(0.1) == pytest.approx(0.5)
    assert scale(Dimension("model.layers", "grid", choices=(2, 3, 4))).position(3) == pytest.approx(0.5)


def test_axes_need_an_order_and_two_values() -> None:
    assert can_be_axis(BATCH)
    assert not can_be_axis(Dimension("strategy", "values", choices=("ddp", "async")))
    assert not can_be_axis(Dimension("model.layers", "grid", choices=(2,)))
    assert not can_be_axis(Dimension("batch_size", "powers_of_two", 16, 16))


def test_a_range_within_a_decade_has_ticks_at_its_ends() -> None:
    assert [label for _, label in scale(Dimension("rate", "log_uniform", 0.11, 0.14)).ticks()] == ["0.11", "0.14"]
