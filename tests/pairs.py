"""Parameters of a test in pairs: not all combinations, but any two values of two parameters together in one of them."""

from itertools import combinations, product
from typing import Any


def pairs(*values: list[Any]) -> list[tuple[Any, ...]]:
    """Rows with one of each parameter's values. The next row is the first of those with most pairs not met so far."""
    rows = list(product(*(range(len(of_one)) for of_one in values)))
    left = {pair for row in rows for pair in _pairs_of(row)}
    chosen = []
    while left:
        row = max(rows, key=lambda row: len(_pairs_of(row) & left))
        left -= _pairs_of(row)
        chosen.append(tuple(of_one[at] for of_one, at in zip(values, row, strict=True)))
    return chosen


def _pairs_of(row: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(row), 2))
