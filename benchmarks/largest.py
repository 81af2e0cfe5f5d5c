"""The largest value of a setting at which something still works."""

from collections.abc import Callable
from typing import Final

STEPS: Final = 8  # of the search's grid for each factor of two: 9 % apart


def largest(works: Callable[[float], bool], start: float, halvings: int) -> float | None:
    """The largest value, to 9 %, below `start` at which `works`; None if it works nowhere in the range.

    Halves from `start` until it works, at most `halvings` times, then bisects the last factor of two. So a failure
    below the first value that works (a learning rate too small to get anywhere) does not mislead the search. ValueError
    if it works at `start` itself.
    """
    if works(start):
        raise ValueError(f"it still works at {start}. Start the search higher.")
    for halving in range(1, halvings + 1):
        top = start / 2**halving
        if works(top):
            low, high = 0, STEPS  # exponents: it works at top * 2^(low / STEPS), and not at top * 2^(high / STEPS)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if works(top * 2 ** (middle / STEPS)) else (low, middle)
            return float(top * 2 ** (low / STEPS))
    return None


def most(seeds: int, works: Callable[[int], bool]) -> bool:
    """Whether it works for more than half of the seeds 0, 1, ...; stops as soon as that is decided."""
    good = bad = 0
    while max(good, bad) <= seeds // 2:
        if works(good + bad):
            good += 1
        else:
            bad += 1
    return good > bad
