"""Random numbers for tensors of which each worker has a part, on CPUs.

Torch draws different numbers for different parts on GPUs alone. On a CPU all workers would fill their parts with the
same numbers, and a matrix whose weights are made when it is split already would have the same columns twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.distributed.tensor import Replicate, _random

SEEDS: Final = 2**62


class PartsApart:
    """What torch asks, in place of its tracker for GPUs, when an operation on a DTensor draws random numbers."""

    distribute_region_enabled = True

    @contextmanager
    def _distribute_region(self, spec: Any, generator: torch.Generator | None = None) -> Iterator[None]:
        """Draw from a seed that is this part's; all workers' generators move on alike, by one number."""
        seed = int(torch.randint(SEEDS, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed + number_of_part(spec))
            yield


def number_of_part(spec: Any) -> int:
    """Which part of a tensor this worker has, from 0; workers with the same values have the same number."""
    number = 0
    for dim, placement in enumerate(spec.placements):
        if not isinstance(placement, Replicate):
            number = number * spec.mesh.size(dim) + spec.mesh.get_local_rank(dim)
    return number


def draw_parts_apart(device: str) -> None:
    """From now on, in this process."""
    if device == "cpu":
        _random._rng_tracker = PartsApart()  # type: ignore[assignment]  # of which it uses these two
