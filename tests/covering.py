"""Which cases of a test every commit runs; `make thorough` runs the others.

@pytest.mark.each_once  # of a product of parameters, as many cases as show each value once
@pytest.mark.parametrize("host", ...)
@pytest.mark.parametrize("rule", ...)

@pytest.mark.alike  # a third of the cases, at least one; tests of a file take turns, so that each case is run by some
@pytest.mark.parametrize("strategy", ...)
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

LEFT_OUT = ("thorough", "drill")
"""Marks of cases that no commit runs."""

Value = tuple[str, str]


def leave_others(items: Iterable[pytest.Item]) -> None:
    """Mark as `thorough` what is not needed of each test that is marked `each_once` or `alike`."""
    items = list(items)
    for cases in _tests(items, "each_once").values():
        needed = covering([{(name, repr(value)) for name, value in case.callspec.params.items()} for case in cases])
        _leave(cases, needed)
    turns: dict[str, int] = defaultdict(int)
    for name, cases in _tests(items, "alike").items():
        file, count = name.partition("::")[0], max(1, len(cases) // 3)
        if len(cases) > 1:
            _leave(cases, {(turns[file] + number) % len(cases) for number in range(count)})
            turns[file] += count


def _tests(items: Iterable[Any], mark: str) -> dict[str, list[Any]]:
    """The cases of each test with this mark that a commit might run, by the test's name."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(mark) and not any(item.get_closest_marker(name) for name in LEFT_OUT):
            tests[item.nodeid.partition("[")[0]].append(item)
    return tests


def _leave(cases: list[Any], needed: set[int]) -> None:
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
