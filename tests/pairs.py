"""Parameters of a test in pairs: not all combinations, but any two values of two parameters together in one of them."""

from itertools import combinations, product
from typing import Any


def pairs(*values: list[Any]) -> list[tuple[Any, ...]]:
    """Rows with one of each parameter's values. The next row is the first of those with most pairs not met so far."""
    pairs_of = {
        row: set(combinations(enumerate(row), 2)) for row in product(*(range(len(of_one)) for of_one in values))
    }
    left = set[Any]().union(*pairs_of.values())
    chosen = []
    while left:
        row = max(pairs_of, key=lambda row: len(pairs_of[row] & left))
        left -= pairs_of[row]
        chosen.append(tuple(of_one[at] for of_one, at in zip(values, row, strict=True)))
    return chosen
