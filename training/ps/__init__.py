"""The parameter server: torch and the standard library only, usable without Lightning.

`SharedRun(workers, settings)` before the fork, `join(...)` in each worker, `joined.begin()`, then `client.push()` after
every backward pass. With host `process`, `serve(...)` in each of `run.servers` processes more.

The rooms, from the outside in:
    run, join, client, replica, server    what processes call: the run, how to join it, a worker's end, a server's body
    settings, rules, damping              what is done with a gradient: pure
    hosts/                                who applies: the worker itself (inline), or a server (process)
    door, rounds, slots                   who may begin and whose gradient is let in; gradients that are averaged
    section, plan, shard, state, growth   one optimizer, where it lies in memory, the making of the next version
    lending                   versions as a worker's parameters, and what somebody writes into them
    optimizers, hyper, layout             the user's optimizer on other tensors; what a push carries; views into memory
    region, lock, event, membership       shared memory, and waiting in it
    cursor, journal                       who takes which batch
    trace, replay                         the log of updates, and a run made of it again
    measures, readout                     what is measured
"""

from scalebook.training.ps.applying.server import serve
from scalebook.training.ps.coordination.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
from scalebook.training.ps.coordination.run import SharedRun
from scalebook.training.ps.policy.settings import Clip, HostName, Settings
from scalebook.training.ps.worker.client import Client, Pushed, WrittenError
from scalebook.training.ps.worker.join import Joined, Snapshot, join

__all__ = [
    "Client",
    "Clip",
    "Counts",
    "HostName",
    "Joined",
    "PushMeasures",
    "Pushed",
    "Settings",
    "SharedRun",
    "Snapshot",
    "StalenessHistogram",
    "WorkerTimes",
    "WrittenError",
    "join",
    "serve",
]
