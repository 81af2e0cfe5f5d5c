"""The parameter server. It needs torch, zstandard and cryptography, and works without Lightning.

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

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.engine import coordination, rules, served_run, worker
    from scalebook.training.engine.codecs.coder import Coder, Spec
    from scalebook.training.engine.codecs.kernels import Kernel, finite
    from scalebook.training.engine.coordination.run import SharedRun
    from scalebook.training.engine.launch import Launch, ServerEnd, anonymous_file
    from scalebook.training.engine.memory.device import Device, Mark, device_of
    from scalebook.training.engine.memory.layout import split_into_shards
    from scalebook.training.engine.memory.uncopied import Uncopied, UncopiedIterator
    from scalebook.training.engine.net.wire import loopback_round_trips
    from scalebook.training.engine.rules.settings import Clip, HostName, Settings
    from scalebook.training.engine.sim import (
        DeclaredBytes,
        Line,
        SimulatedClock,
        SimulatedWorkers,
        Watch,
    )
    from scalebook.training.engine.store.server import serve
    from scalebook.training.engine.store.table_optimizer import is_table
    from scalebook.training.engine.worker.client import Client
    from scalebook.training.engine.worker.join import join
    from scalebook.training.engine.worker.joined_worker import Joined
    from scalebook.training.engine.worker.worker_end import WrittenError

__all__ = [
    "Client", "Clip", "Coder", "DeclaredBytes", "Device", "HostName", "Joined", "Kernel", "Launch", "Line", "Mark",
    "ServerEnd", "Settings", "SharedRun", "SimulatedClock", "SimulatedWorkers", "Spec", "Uncopied", "UncopiedIterator",
    "Watch", "WrittenError", "anonymous_file", "coordination", "device_of", "finite", "is_table", "join",
    "loopback_round_trips", "rules", "serve", "served_run", "split_into_shards", "worker",
]  # fmt: skip

__getattr__ = interface(__name__)
