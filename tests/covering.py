"""Of a product of parameters every commit runs as many cases as show each value once; `make thorough` runs the others.

@pytest.mark.each_once
@pytest.mark.parametrize("host", ...)
@pytest.mark.parametrize("rule", ...)
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

LEFT_OUT = ("thorough", "drill")
"""Marks of cases that no commit runs."""

Value = tuple[str, str]


def leave_others(items: Iterable[pytest.Item]) -> None:
    """Mark as `thorough` what is not needed of each test that is marked `each_once`."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("each_once") and not any(item.get_closest_marker(name) for name in LEFT_OUT):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        needed = covering([{(name, repr(value)) for name, value in case.callspec.params.items()} for case in cases])
        for number, case in enumerate(cases):
            if number not in needed:
                case.add_marker(pytest.mark.thorough)


def covering(cases: list[set[Value]]) -> set[int]:
    """Numbers of cases that have all values between them. The next one is the first with most values not met so far."""
    left, chosen = set[Value]().union(*cases), set[int]()
    while left:
        best = max(range(len(cases)), key=lambda number: len(cases[number] & left))
        left -= cases[best]
        chosen.add(best)
    return chosen
