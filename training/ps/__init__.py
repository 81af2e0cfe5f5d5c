"""The parameter server: torch and the standard library only, usable without Lightning.

`SharedRun(workers)` before the fork, `join(...)` in each worker, then `client.push()` after every backward pass.
"""

from training.ps.client import Client
from training.ps.join import Joined, SharedRun, join
from training.ps.measures import Counts, StalenessHistogram, WorkerTimes

__all__ = ["Client", "Counts", "Joined", "SharedRun", "StalenessHistogram", "WorkerTimes", "join"]
