from itertools import combinations, product

import pytest

from tests.pairs import pairs


@pytest.mark.parametrize(
    ("values", "rows"),
    [([[1, 3], [1, 3], [1, 3]], 4), ([["a", "b", "c"], [1, 2], [1, 2]], 6), ([[1, 2, 3, 4], [1, 2], [1, 2]], 8)],
)
def test_any_two_values_of_two_parameters_stand_in_one_row(values: list[list[object]], rows: int) -> None:
    found = pairs(*values)
    assert len(found) == rows
    assert set(found) <= set(product(*values))
    for (i, first), (j, second) in combinations(enumerate(values), 2):
        assert {(row[i], row[j]) for row in found} == set(product(first, second))
