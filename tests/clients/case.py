"""What a case declares, the ways in which it is run, and what its program is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Way = Literal["single", "ddp", "async", "sync", "virtual", "tensor", "shard", "both"]
BASELINES: Final[tuple[Way, ...]] = ("single", "ddp")
OURS: Final[tuple[Way, ...]] = ("async", "sync", "virtual")
SPLITS: Final[tuple[Way, ...]] = ("tensor", "shard", "both")
WAYS: Final = (*BASELINES, *OURS, *SPLITS)


@dataclass(frozen=True)
class Measure:
    """A number of the fit, and how much worse than that of both baselines (those that ended) it may be; where it is to
    be the same, how far from one process's."""

    better: Literal["lower", "higher", "same"]
    tolerance: float
    baselines: tuple[Way, ...] = BASELINES


@dataclass(frozen=True)
class Case:
    """One ordinary program of a library's user: a function of `tests.clients.cases`, called with a `Setting`."""

    name: str
    program: str
    """`module.function` below `tests.clients.cases`."""
    packages: tuple[str, ...]
    measures: Mapping[str, Measure]
    pytorch_lightning: bool = False
    """Whether its Trainers are of the package of that name, one for each call, which want a strategy's name."""
    ways: tuple[Way, ...] = (*BASELINES, *OURS)
    """In which it can be run at all."""
    exact: Mapping[str, float] = field(default_factory=dict)
    """How far a value may be from one process's under `sync`, relative: rounding. The two workers' batches together are
    one process's."""


@dataclass(frozen=True)
class Setting:
    """What differs between the ways."""

    trainer: dict[str, Any]
    """Arguments of the Trainer: accelerator, devices, strategy."""
    folder: Path
    """Of this run alone."""
