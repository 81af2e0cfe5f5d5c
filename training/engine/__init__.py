"""The parameter server: torch and the standard library only, usable without Lightning.

`SharedRun(workers, settings)` before the fork, `join(...)` in each worker, `joined.begin()`, then `client.push()` after
every backward pass. With host `process`, `serve(...)` in each of `run.servers` processes more.

The rooms, from the ground up; each knows only those before it:
    policy         what is done with a gradient: rules, dampings, settings. Pure, and without torch
    codecs         gradients and parameters in fewer bytes: the kernels of what policy declares
    clock          how a worker waits, and what time it is
    memory         shared memory, locks and events in it, views into it; versions lent as a worker's parameters
    optimizer      the user's optimizer on other tensors, the hyper-parameters that a push carries, its state seen
    trace          the log of updates
    coordination   what processes know of each other: the run, who may begin, who is let in, who is there; measures
    applying       one optimizer: where it lies in memory, its shards and rounds, and its hosts (who applies)
    worker         a worker's end: join, pull, push; which batches are whose; `end`, all that a trainer knows
    sim            all workers of a run simulated by one process, on a clock that is declared (host virtual)
    channel        workers on other machines: frames, who may come in, a proxy for each, and their end
    replay         a run made again from its trace
    launch         what the processes of a run share, made before the fork, and the ends that they get
    far            the same for a run over several machines: the server's one port, and the way there
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scalebook.training.engine.coordination.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
    from scalebook.training.engine.coordination.run import SharedRun
    from scalebook.training.engine.rules.settings import Clip, HostName, Settings
    from scalebook.training.engine.store.server import serve
    from scalebook.training.engine.worker.client import Client
    from scalebook.training.engine.worker.join import join
    from scalebook.training.engine.worker.joined_worker import Joined
    from scalebook.training.engine.worker.worker_end import PushResult, Snapshot, WrittenError

__all__ = [
    "Client",
    "Clip",
    "Counts",
    "HostName",
    "Joined",
    "PushMeasures",
    "PushResult",
    "Settings",
    "SharedRun",
    "Snapshot",
    "StalenessHistogram",
    "WorkerTimes",
    "WrittenError",
    "join",
    "serve",
]

_ROOMS: Final = {
    "store.server": ("serve",),
    "coordination.measures": ("Counts", "PushMeasures", "StalenessHistogram", "WorkerTimes"),
    "coordination.run": ("SharedRun",),
    "rules.settings": ("Clip", "HostName", "Settings"),
    "worker.client": ("Client",),
    "worker.worker_end": ("PushResult", "Snapshot", "WrittenError"),
    "worker.join": ("join",),
    "worker.joined_worker": ("Joined",),
}


def __getattr__(name: str) -> Any:
    """What is offered here, from its room when it is asked for: the policy is to be had without torch."""
    for room, offered in _ROOMS.items():
        if name in offered:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
