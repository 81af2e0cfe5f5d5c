"""Where a model is cut into stages, and what each stage does in turn: workers do it, and the planner plays it.

`gpipe`: all microbatches forward, then all backward, the last first (Huang et al. 2019). `1f1b`: a stage begins with
the backward pass of a microbatch as soon as it can, so that few of them are under way (Narayanan et al. 2019, 2021).
"""

from collections.abc import Sequence
from typing import Final, Literal

Schedule = Literal["gpipe", "1f1b"]
Operation = Literal["forward", "recompute", "backward"]
HALVINGS: Final = 60
"""Halvings of the interval in which the largest stage's cost lies: as exact as the numbers are."""


def under_way(schedule: Schedule, stage: int, stages: int, microbatches: int) -> int:
    """Most microbatches whose activations a stage (from 0) keeps at the same time."""
    return microbatches if schedule == "gpipe" else min(microbatches, stages - stage)


def order(
    schedule: Schedule, stage: int, stages: int, microbatches: int, recomputed: int = 0
) -> list[tuple[Operation, int]]:
    """What a stage (from 0) does, in turn. `recomputed`: the first so many microbatches are computed again before their
    backward pass."""
    ahead = under_way(schedule, stage, stages, microbatches)
    forward = list(range(microbatches))
    backward = forward[::-1] if schedule == "gpipe" else forward
    done: list[tuple[Operation, int]] = [("forward", number) for number in forward[:ahead]]
    for place, number in enumerate(backward):
        if number < recomputed:
            done.append(("recompute", number))
        done.append(("backward", number))
        if ahead + place < microbatches:
            done.append(("forward", ahead + place))
    return done


def cut(costs: Sequence[float], count: int) -> list[int]:
    """The first part of each of `count` stages of consecutive parts, so that the largest costs as little as possible,
    and the others are as even as that allows. There are at least `count` parts."""
    low, high = max(*costs, sum(costs) / count), sum(costs)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _fewest(costs, middle) <= count else (middle, high)
    return _even(costs, high * (1 + 1e-12), count)


def _fewest(costs: Sequence[float], most: float) -> int:
    """Stages that are needed if none costs more than `most`."""
    count, filled = 0, most
    for cost in costs:
        if filled + cost > most:
            count, filled = count + 1, 0.0
        filled += cost
    return count


def _even(costs: Sequence[float], most: float, count: int) -> list[int]:
    """The first part of each of `count` stages of at most `most`: each takes parts up to its share of what is left, or
    as many as those behind it need it to take."""
    begins, filled = [0], costs[0]
    for place in range(1, len(costs)):
        behind = count - len(begins)
        share = (filled + sum(costs[place:])) / (behind + 1)
        needs = len(costs) - place <= behind  # one for each stage
        fits = behind > 0 and _fewest(costs[place:], most) <= behind
        if needs or (fits and filled + costs[place] / 2 > share) or filled + costs[place] > most:
            begins.append(place)
            filled = 0.0
        filled += costs[place]
    return begins
