"""The parameter server: torch and the standard library only, usable without Lightning.

`SharedRun(workers, settings)` before the fork, `join(...)` in each worker, `joined.begin()`, then `client.push()` after
every backward pass. With host `process`, `serve(...)` in each of `run.servers` processes more.
"""

from training.ps.client import Client, Pushed
from training.ps.join import Joined, Snapshot, join
from training.ps.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
from training.ps.run import SharedRun
from training.ps.server import serve
from training.ps.settings import Clip, HostName, Settings

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
    "join",
    "serve",
]
