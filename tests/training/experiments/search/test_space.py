from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.base.files.yaml_flow import same
from scalebook.training.experiments.search.space import Dimension, power_of_two
from scalebook.training.experiments.search.space_body import read_dimension
from tests.training.experiments.searches import ranges


@pytest.mark.parametrize(
    ("dimension", "value", "stored"),
    [
        (Dimension("batch_size", "powers_of_two", 16, 1024), 64, 6),
        (Dimension("workers", "grid", choices=(1, 2, 6)), 6, 2),
        (Dimension("strategy", "values", choices=("single", "async")), "async", "async"),
        (Dimension("a.b", "values", choices=(1, "1", True, None)), "1", '"1"'),
        (
            Dimension("a.b", "values", choices=({"class_path": "x.Y"}, "x.Y")),
            {"class_path": "x.Y"},
            "{class_path: x.Y}",
        ),
        (Dimension("model.hidden", "int", 16, 256, log=True), 20, 20),
        (Dimension("learning_rate", "log_uniform", 0.001, 1.0), 0.25, 0.25),
    ],
)
def test_what_a_study_stores(dimension: Dimension, value: Any, stored: Any) -> None:
    assert same(dimension.encode(value), stored)
    assert same(dimension.decode(stored), value)


@given(ranges, st.data())
def test_every_value_comes_back_as_it_was(told: dict[str, Any], data: st.DataObject) -> None:
    dimension = read_dimension("model.x", told)
    visited = dimension.grid() if dimension.grid_size() is not None else dimension.ends()
    for value in [*dimension.ends(), data.draw(st.sampled_from(visited))]:
        assert dimension.contains(value)
        assert same(dimension.decode(dimension.encode(value)), value)
    assert len({dimension.encode(value) for value in visited}) == len(visited)
    assert dimension.grid_size() in (None, len(visited))
    if dimension.ordered:
        assert sorted(visited) == visited


@given(ranges)
def test_a_dimension_reads_as_it_is_written(told: dict[str, Any]) -> None:
    dimension = read_dimension("model.x", told)
    assert read_dimension("model.x", dimension.body()) == dimension


def test_what_a_grid_visits() -> None:
    assert Dimension("x", "powers_of_two", 16, 128).grid() == [16, 32, 64, 128]
    assert Dimension("x", "int", 10, 100, step=40).grid() == [10, 50, 90]
    assert Dimension("x", "int", 1, 1000, log=True, points=4).grid() == [1, 10, 100, 1000]
    assert Dimension("x", "log_uniform", 0.001, 1.0, points=4).grid() == pytest.approx([0.001, 0.01, 0.1, 1.0])
    assert Dimension("x", "uniform", 0.0, 1.0, points=3).grid() == [0.0, 0.5, 1.0]
    assert Dimension("x", "uniform", 0.0, 1.0).grid_size() is None
    assert Dimension("x", "int", 1, 10**12).grid_size() == 10**12


def test_the_ends_are_values_that_can_be() -> None:
    assert Dimension("x", "int", 10, 100, step=40).ends() == [10, 90]
    assert Dimension("x", "values", choices=("a", "b", "c")).ends() == ["a", "b", "c"]
    assert Dimension("x", "grid", choices=(1, 2, 3)).ends() == [1, 3]
    assert Dimension("x", "int", 5, 5).ends() == [5]


@pytest.mark.parametrize(
    ("dimension", "strangers"),
    [
        (Dimension("x", "powers_of_two", 16, 64), [96, 8, 128, 32.5, "32", True, None]),
        (Dimension("x", "int", 10, 100, step=5), [12, 9, 101, 10.5, True]),
        (Dimension("x", "log_uniform", 0.1, 1.0), [0.01, 2, float("nan"), "0.5", False]),
        (Dimension("x", "values", choices=(1, "a")), [True, 1.0, "b", None]),
        (Dimension("x", "grid", choices=(1, 2.5)), [2, True, "1"]),
    ],
)
def test_values_that_are_none_of_it(dimension: Dimension, strangers: list[Any]) -> None:
    for value in strangers:
        assert not dimension.contains(value)
        with pytest.raises(ValueError, match="is not among"):
            dimension.encode(value)


def test_a_category_that_has_been_taken_away_is_refused() -> None:
    with pytest.raises(ValueError, match="is none of single, ddp"):
        Dimension("strategy", "values", choices=("single", "ddp")).decode("async")


def test_labels_are_short() -> None:
    server = {
        "class_path": "scalebook.training.lightning.AsyncPS",
        "init_args": {"rule": {"class_path": "p.Bounded"}, "shards": 2},
    }
    label = Dimension("strategy", "values", choices=(server, "ddp")).label
    assert label(server) == "AsyncPS rule=(Bounded) shards=2"
    assert (label("ddp"), label(True), label(None), label(3)) == ("ddp", "true", "null", "3")
    assert Dimension("x", "uniform", 0.0, 1.0).label(1 / 3) == "0.333"
    assert Dimension("x", "powers_of_two", 16, 1024).words() == "16 ... 1024"
    assert Dimension("x", "values", choices=("a", 2)).words() == "a, 2"


def test_powers_of_two() -> None:
    assert [number for number in range(-2, 20) if power_of_two(number)] == [1, 2, 4, 8, 16]
    assert not power_of_two(2.5)
