"""What a run of several processes puts up with: deaths of workers, and waiting. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from scalebook.training.ps.policy.bounds import NonNegativeInt, PositiveFloat, check
from scalebook.training.ps.policy.contradictions import ARGUMENTS

LIMITS: Final = f"{ARGUMENTS}.limits"
"""Where a config has them."""


@dataclass(frozen=True)
class Limits:
    """How often workers restart, and how long processes wait for each other.

    Args:
        restarts: How often a dead worker restarts in one run, over all workers. After that, training continues without
            it. Worker 0 never restarts: its death ends the run.
        deadline_s: Seconds after which a wait for another process fails.
    """

    restarts: NonNegativeInt = 0
    deadline_s: PositiveFloat = 600.0

    def __post_init__(self) -> None:
        for name, kind, words in (("restarts", int, "a whole number"), ("deadline_s", int | float, "a number")):
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{LIMITS}.{name}: {value!r} is not {words}. Write one, or remove the key.")
        check(Limits, vars(self), LIMITS)


USUAL: Final = Limits()


def read_limits(written: object) -> Limits:
    """The limits that a config writes as `{restarts: 2}`; ValueError, naming key and remedy, for anything else."""
    if isinstance(written, Limits):
        return written
    if not isinstance(written, Mapping):
        raise ValueError(f"{LIMITS}: is {written!r}, not a mapping. Write it as {{restarts: 2, deadline_s: 60}}.")
    known = [field.name for field in fields(Limits)]
    for name in written:
        if name not in known:
            raise ValueError(f"{LIMITS}.{name}: is not one of the limits. Write {' or '.join(known)}.")
    given: dict[str, Any] = {str(name): value for name, value in written.items()}
    return Limits(**given)
