"""How far predictions were from measurements, as `benchmarks/virtual_truth.py` has found."""

from functools import cache
from importlib import resources

from scalebook.training.files import records
from scalebook.training.planning.answer import Reliability


@cache
def reliability() -> Reliability:
    """The committed figures of the benchmark."""
    with resources.as_file(resources.files("scalebook.training.planning") / "reliability.json") as path:
        found = records.load(path, Reliability)
    assert found is not None, "it lies beside this module"
    return found
