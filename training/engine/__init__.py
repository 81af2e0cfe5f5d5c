"""The parameter server: torch and the standard library only, usable without Lightning.

`SharedRun(workers, settings)` before the fork, `join(...)` in each worker, `joined.begin()`, then `client.push()` after
every backward pass. With host `process`, `serve(...)` in each of `run.servers` processes more.

Begin with `worker/client.py` (a push and a pull) and `store/shard.py` (how a version is made). The rooms, from the
ground up; each knows only those before it:
    rules          what is done with a gradient: rules, dampings, codecs, settings. Pure, and without torch
    codecs         gradients and parameters in fewer bytes: the kernels of the codecs that `rules` declares
    memory         shared memory, locks and events in it, views into it
    coordination   what processes know of each other: the run, who may begin, whose gradient is admitted; measures
    store          one optimizer: its memory, shards, rounds, and its hosts (who applies a gradient)
    worker         a worker's end: join, pull, push; `worker_end` is all that a trainer knows
    sim            all workers of a run simulated by one process, on a clock that is declared (host virtual)
    net            workers on other nodes: frames, authentication, a proxy for each beside the shards
Beside them: `launch` makes what the processes of a run share, `served_run` does so for several nodes, `replay` makes a
run again from its `trace`, `worker_clock` says how a worker waits, `hyper` what travels with a push.
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
