import math

from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.planner.tuning.batch_tries import PRECISION, Bracket


def search(wall: int, most: int, multiple: int = 1) -> tuple[Bracket, list[int]]:
    """Sizes up to `wall` fit."""
    bracket, tried = Bracket(most, multiple), []
    while (size := bracket.next()) is not None:
        tried.append(size)
        bracket.note_try(size, size <= wall)
    return bracket, tried


def test_it_doubles_and_then_closes_in() -> None:
    bracket, tried = search(100, 65_536)
    assert tried == [8, 16, 32, 64, 128, 96, 112, 104, 100, 102]
    assert (bracket.fits, bracket.too_large) == (100, 102)


def test_the_most_is_tried_and_is_no_failure() -> None:
    bracket, tried = search(10_000, 100)
    assert tried == [8, 16, 32, 64, 100]
    assert (bracket.fits, bracket.too_large) == (100, None)


def test_it_goes_down_where_the_first_size_is_too_large() -> None:
    assert search(3, 100)[1] == [8, 4, 2, 3]
    bracket, tried = search(0, 100)
    assert tried == [8, 4, 2, 1]
    assert bracket.fits == 0


def test_only_multiples_are_tried() -> None:
    bracket, tried = search(1000, 5000, 48)
    assert all(size % 48 == 0 for size in tried)
    assert bracket.fits == 1000 // 48 * 48


def test_a_wall_of_another_kind_comes_before_memory() -> None:
    bracket = Bracket(1000)
    bracket.note_try(8, fits=True)
    bracket.lower(12)
    assert bracket.next() == 12
    bracket.note_try(12, fits=True)
    assert bracket.next() is None


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 100))
def test_any_wall_is_found_and_hit_ever_lower(wall: int, most: int, multiple: int) -> None:
    bracket, tried = search(wall, most, multiple)
    walls = [size for size in tried if size > wall]
    assert walls == sorted(set(walls), reverse=True)
    assert len(tried) == len(set(tried)) <= 2 * math.log2(8 * most + 8) + 4
    best = min(wall, most) // multiple * multiple
    assert best - max(multiple, bracket.fits // PRECISION) < bracket.fits <= best
