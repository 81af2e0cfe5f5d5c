"""What the processes that were started for one run tell each other: that they have come, and how they have ended."""

from enum import StrEnum
from typing import NamedTuple

import torch.distributed as dist

from scalebook.training.errors import one_line
from scalebook.training.failures import ProcessLost


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
    """What each says when it comes, and what must be the same everywhere."""

    host: str
    pid: int
    devices: int
    seed: str
    versions: str


def end_of(error: BaseException) -> NodeEnd:
    """How a run has ended here that this error ends."""
    if isinstance(error, ProcessLost):
        return NodeEnd(How.DIED, error.cause, error.number)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return NodeEnd(How.STOPPED)
    echo = isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "NCCL"))
    how = How.ECHO if echo or isinstance(error, dist.DistError) else How.RAISED
    return NodeEnd(how, one_line(f"{type(error).__name__}: {error}"))
