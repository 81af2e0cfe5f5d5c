"""Whoever changes a line that a mutant changes moves the mutant along."""

from pathlib import Path

from tests.mutants import ALL

ROOT = Path(__file__).resolve().parents[2]


def test_the_place_of_every_mutant_is_there_once() -> None:
    places = {f"{mutant.file}: {mutant.old}": (ROOT / mutant.file).read_text().count(mutant.old) for mutant in ALL}
    assert {place: count for place, count in places.items() if count != 1} == {}


def test_the_tests_that_shall_find_a_mutant_are_there() -> None:
    named = {test.partition("::")[0] for mutant in ALL for test in mutant.tests}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []
