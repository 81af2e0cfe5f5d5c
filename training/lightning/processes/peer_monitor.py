"""What a run on several nodes adds to the watch over the processes of one node, and the messages between the nodes'
monitors: that they have come, and how they have ended."""

import os
import socket
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.metadata import version
from typing import Final, NamedTuple

import torch
import torch.distributed as dist

from scalebook.training.base import ConfigError, ProcessLost, node_rank, one_line

ALIKE: Final = "Use the same versions, config and command on all nodes."
STRATEGY: Final = "trainer.strategy"
SHOWN: Final = 6
"""The most keys in one message."""
LOOK_S: Final = 1.0


class PeerMonitor:
    """The other nodes of a run, for the monitor of one. This base class is for a run on a single node."""

    def start_monitoring(self) -> None:
        """Start to look for the other nodes, when all processes here are forked."""

    def is_there(self, worker: int) -> bool:
        """Whether a process for this worker starts at the beginning."""
        return True

    def joining(self) -> Sequence[int]:
        """Workers for which a process is to be started now, after `check`."""
        return ()

    def look_s(self) -> float:
        """The longest time until the next `check`, s."""
        return LOOK_S

    def check(self, stopping: bool) -> None:
        """Raise what ends the run here because of other nodes. Called every `look_s`; `stopping`: a SIGTERM has come
        here."""

    def send_heartbeat(self) -> None:
        """Show the other nodes that this monitor lives, during something that delays the next `check`."""

    def announce_end(self) -> None:
        """Tell the other nodes that all workers here have returned; they then expect no signs of life from here."""

    def explained(self, error: BaseException) -> BaseException:
        """Tell the other nodes that the run ends here. Returns the error to end with: theirs, if that is the cause."""
        return error

    def stop_monitoring(self) -> None:
        """Leave the run, when the processes here have ended."""


NONE: Final = PeerMonitor()


class ExitReason(StrEnum):
    """How a node's part in a run has ended; of several ends, the first in this order is the run's.

    An echo is an error that only says that another process is gone.
    """

    DIED = "died"
    SILENT = "silent"
    RAISED = "raised"
    STOPPED = "stopped"
    ECHO = "echo"
    DONE = "done"


class NodeEnd(NamedTuple):
    """An end, as it is sent. `worker`: the number, in the whole run, of a worker that died."""

    reason: ExitReason
    cause: str = ""
    worker: int = 0


class NodeHello(NamedTuple):
    """What each node sends when it comes; most of it must be the same on all. `settings`: a digest of the engine's;
    `config`: digests, by key."""

    host: str
    pid: int
    devices: int
    seed: str
    versions: str
    settings: str
    config: Mapping[str, str]


def hello(devices: int, config: Mapping[str, str], settings: str = "") -> NodeHello:
    """The hello of this process. `devices`: workers on one node."""
    versions = f"Scalebook {version('scalebook')}, torch {torch.__version__}"
    seed = os.environ.get("PL_GLOBAL_SEED", "none")
    return NodeHello(socket.gethostname(), os.getpid(), devices, seed, versions, settings, dict(config))


def refuse_unlike(first: NodeHello, other: NodeHello, first_name: str, other_name: str) -> None:
    """ConfigError if two nodes of a run, with these names, were not started alike."""
    for key, there, here in (
        (node_rank.DEVICES, other.devices, first.devices),
        ("seed_everything", other.seed, first.seed),
        ("versions", other.versions, first.versions),
    ):
        if there != here:
            raise ConfigError(key, f"is {here} on {first_name}, but {there} on {other_name}", ALIKE)
    keys = sorted(key for key in {*first.config, *other.config} if first.config.get(key) != other.config.get(key))
    if keys:
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        besides = f", and so {'do' if keys[2:] else 'does'} {', '.join(keys[1:SHOWN])}{more}" if keys[1:] else ""
        raise ConfigError(keys[0], f"differs between {first_name} and {other_name}{besides}", ALIKE)
    if first.settings != other.settings:
        raise ConfigError(STRATEGY, f"has different arguments on {first_name} and {other_name}", ALIKE)


def end_of(error: BaseException) -> NodeEnd:
    """The NodeEnd for a run that this error ends."""
    if isinstance(error, ProcessLost):
        return NodeEnd(ExitReason.DIED, error.cause, error.number)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return NodeEnd(ExitReason.STOPPED)
    echo = isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "NCCL"))
    reason = ExitReason.ECHO if echo or isinstance(error, dist.DistError) else ExitReason.RAISED
    return NodeEnd(reason, one_line(f"{type(error).__name__}: {error}"))
