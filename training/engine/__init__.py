"""The parameter server. It needs torch and the standard library only, and works without Lightning.

Make `SharedRun(workers, settings)` before the fork. In each worker call `join(...)`, then `joined.begin()`, then
`client.push()` after every backward pass. With host `process`, start `run.servers` more processes that call
`serve(...)`.

Begin with `worker/client.py` (a push and a pull) and `store/shard.py` (how a version is made). The packages, from the
ground up:
    rules          what is done with a gradient: rules, dampings, codecs, settings. Pure, without torch
    codecs         the kernels that encode gradients and parameters in fewer bytes
    worker_clock   how a worker waits, and what time it is
    memory         shared memory with locks and events; copy-on-write views of it; copies to and from GPUs
    hyper          the hyper-parameters that travel with a push
    trace          the log of updates
    coordination   shared state of the run: admission of gradients, membership, messages, measures
    store          one optimizer: its memory layout, state, shards, rounds, and the hosts that apply updates
    worker         a worker's end of the run: join, pull, push; which worker takes which batch
    sim            one process that simulates all workers on a declared clock (host `virtual`)
    net            workers on other nodes: frames, authentication, a proxy for each worker
    launch         what the processes of a run share, made before the fork
    served_run     a run over several nodes: the server's port, and the connection to it
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
    """Import a name from its module when it is first used, so that the rules can be imported without torch."""
    for room, offered in _ROOMS.items():
        if name in offered:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
