"""What the processes that were started for one run tell each other: that they have come, and how they have ended."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import torch.distributed as dist

from scalebook.training.errors import ConfigError, one_line
from scalebook.training.failures import ProcessLost
from scalebook.training.nodes import DEVICES

ALIKE: Final = "Start the same on all."
SHOWN: Final = 6
"""Keys in one message."""


class How(StrEnum):
    """How a process that was started has ended; the first of several is what the run ends with.

    An echo is an error that says no more than that somebody else is gone.
    """

    DIED = "died"
    SILENT = "silent"
    RAISED = "raised"
    ECHO = "echo"
    STOPPED = "stopped"
    LEFT = "left"
    DONE = "done"


class NodeEnd(NamedTuple):
    """An end, as it is told. `worker`: of one that died, in the whole run."""

    how: How
    cause: str = ""
    worker: int = 0


class Came(NamedTuple):
    """What each says when it comes, and what must be the same everywhere. `config`: digests, by key."""

    host: str
    pid: int
    devices: int
    seed: str
    versions: str
    config: Mapping[str, str]


def refuse_unlike(first: Came, other: Came, first_name: str, other_name: str) -> None:
    """ConfigError where two machines of a run, called so, were not started alike."""
    for key, there, here in (
        (DEVICES, other.devices, first.devices),
        ("seed_everything", other.seed, first.seed),
        ("versions", other.versions, first.versions),
    ):
        if there != here:
            raise ConfigError(key, f"is {here} on {first_name}, and {there} on {other_name}", ALIKE)
    keys = sorted(key for key in {*first.config, *other.config} if first.config.get(key) != other.config.get(key))
    if keys:
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        besides = f", and so {'do' if keys[2:] else 'does'} {', '.join(keys[1:SHOWN])}{more}" if keys[1:] else ""
        raise ConfigError(keys[0], f"differs between {first_name} and {other_name}{besides}", ALIKE)


def end_of(error: BaseException) -> NodeEnd:
    """How a run has ended here that this error ends."""
    if isinstance(error, ProcessLost):
        return NodeEnd(How.DIED, error.cause, error.number)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return NodeEnd(How.STOPPED)
    echo = isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "NCCL"))
    how = How.ECHO if echo or isinstance(error, dist.DistError) else How.RAISED
    return NodeEnd(how, one_line(f"{type(error).__name__}: {error}"))
