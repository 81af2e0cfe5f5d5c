import pytest

from benchmarks.engine_systems import GOALS, SYSTEMS, choose


def names(only: list[str], everything: bool = False) -> list[str]:
    return [system.name for system in choose(SYSTEMS, only, everything)]


def test_names_are_unique_and_every_goal_names_rows() -> None:
    known = [system.name for system in SYSTEMS]
    assert len(set(known)) == len(known)
    assert {name for goal in GOALS for name in (goal.above, goal.below)} <= set(known)


def test_a_whole_name_selects_one_row_and_a_part_of_it_several() -> None:
    assert names(["AsyncPS x 2"]) == ["AsyncPS x 2"]
    assert names(["hogwild", "one process"]) == ["one process", "hogwild x 2"]
    assert set(names(["Adam"])) == {"one process, Adam", "AsyncPS x 1, Adam", "AsyncPS x 2, Adam"}


def test_rows_beyond_the_default_ones_are_measured_only_when_asked_for() -> None:
    assert set(names([])) < set(names([], everything=True)) == {system.name for system in SYSTEMS}


def test_a_name_that_fits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="--only 'hogwyld': no row"):
        names(["hogwyld"])
