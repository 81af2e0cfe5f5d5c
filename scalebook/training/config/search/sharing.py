"""Whether every global batch of a search can be shared out to every number of workers."""

import math
from typing import Final

from scalebook.training.config.description import Description
from scalebook.training.config.search.point import is_single
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.space_body import Read
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.config.workload import workload
from scalebook.training.errors import Problem

SHOWN: Final = 3
PERIOD: Final = 1024
"""Remainders of evenly spaced numbers repeat after as many of them as there are workers, 1024 at most."""


def candidates(dimension: Dimension) -> list[int]:
    """The whole numbers that a dimension may take; of a wide range the first `PERIOD` and the last."""
    if dimension.kind == "int":
        first = range(int(dimension.low), int(dimension.high) + 1, dimension.step)
        return [*first[:PERIOD], *first[PERIOD:][-1:]]
    return [int(value) for value in dimension.grid() if isinstance(value, int) and not isinstance(value, bool)]


def sharing_problems(spec: SearchSpec, space: Read, description: Description) -> list[Problem]:
    """An error for batches that some number of workers does not divide; none under weak scaling."""
    load = workload(spec.config, description)
    if spec.scaling == "weak" or (load.batch_global is None and not spec.has("batch_size")):
        return []
    counts = candidates(spec.dimension("workers")) if spec.has("workers") else [load.workers]
    strategies = spec.dimension("strategy").choices if spec.has("strategy") else ()
    if strategies and all(is_single(strategy) for strategy in strategies):
        counts = [1]
    common = math.lcm(*counts)
    if not spec.has("batch_size"):
        odd = [count for count in counts if load.batch_global is not None and load.batch_global % count]
        if not odd:
            return []
        shared = f"shares the experiment's global batch of {load.batch_global}"
        message = f"{shared} out to {', '.join(str(count) for count in odd[:SHOWN])} workers, which do not divide it"
        remedy = f"Give it a batch that {common} divides, or write scaling: weak."
        return [Problem(space.key("workers"), message, remedy)]
    batch = spec.dimension("batch_size")
    every = candidates(batch)
    odd_for = ((by, [batch for batch in every if batch % by]) for by in counts)
    workers, batches = next(((by, odd) for by, odd in odd_for if odd), (1, []))
    if not batches:
        return []
    named = ", ".join(str(batch) for batch in batches[:SHOWN]) + (" and more" if len(batches) > SHOWN else "")
    message = f"has global batches that {workers} workers cannot split: {named}"
    return [Problem(space.key("batch_size"), message, _remedy(batch, common))]


def _remedy(batch: Dimension, common: int) -> str:
    weak = "or scaling: weak, where each worker has the whole batch"
    low, high = -(-batch.low // common) * common, batch.high // common * common
    if batch.kind == "powers_of_two" and common & (common - 1) == 0 and common <= batch.high:
        return f"Write powers_of_two: [{max(common, int(batch.low))}, {int(batch.high)}], {weak}."
    if batch.kind in ("int", "powers_of_two") and low <= high:
        return f"Write int: [{int(low)}, {int(high)}] with step: {common}, {weak}."
    return f"Write batches that {common} divides, {weak}."
