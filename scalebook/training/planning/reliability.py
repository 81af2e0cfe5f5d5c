"""How far predictions were from measurements, as `benchmarks/virtual_truth.py` has found."""

from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

from scalebook.training.files import records
from scalebook.training.planning.answer import Range, Reliability
from scalebook.training.planning.profile import Profile

SHORT_S: Final = 0.003
"""Seconds of a gradient below which waking each other, 0.1 to 0.3 ms, is a tenth of it for workers of one machine."""


def reliability_of(profile: Profile) -> Reliability:
    """For this profile: wider where workers of one machine compute such short gradients."""
    found = reliability()
    if found.sharing is None or profile.cores is None or profile.gradient_mean_s >= SHORT_S:
        return found
    lowest = min(found.updates_per_s.lowest, found.sharing.lowest)
    highest = max(found.updates_per_s.highest, found.sharing.highest)
    return replace(found, updates_per_s=Range(lowest, highest), sharing=None)


@cache
def reliability() -> Reliability:
    """The committed figures of the benchmark."""
    with resources.as_file(resources.files("scalebook.training.planning") / "reliability.json") as path:
        found = records.load(path, Reliability)
    assert found is not None, "it lies beside this module"
    return found
