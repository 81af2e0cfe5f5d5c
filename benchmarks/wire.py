"""What a gradient costs that crosses to another node, and the parameters back: `python -m benchmarks.wire`.

Over loopback, with a process for each worker and each proxy; CPU time is that of both ends. The task of
`benchmarks.engine` (2.7 MB each way): workers on this node and on another, plain and with TLS, torch RPC and DDP over
gloo. Systems take turns, and ratios are within one turn. Three minutes on two cores. Read the ratios: a remote worker
should need no more CPU time than torch RPC (goal: 1).
"""

import mmap
import os
from functools import partial
from typing import Final

from benchmarks import engine_systems
from benchmarks.common import Others, parser
from benchmarks.engine_baselines import cpu_seconds
from benchmarks.engine_ps import DEADLINE_S, Part, combined
from benchmarks.engine_systems import System, choose
from benchmarks.engine_table import Goal, table
from benchmarks.engine_task import Measured, loop, make_optimizer, perceptron
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.channel import ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Secret, serving
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.lightning.processes.run_workers import run_workers

HOST: Final = "127.0.0.1"
RUN: Final = "benchmark"
WORKERS: Final = 2


def end_at_once(why: str) -> None:
    """End a proxy whose worker is dead; it may be blocked in a wait."""
    print(why, flush=True)
    os._exit(1)


def remote(seconds: float, workers: int = WORKERS, tls: bool = False) -> Measured:
    """Workers that reach the shards over loopback, as from other nodes; each proxy is a process."""
    settings, secret, context = Settings(), Secret(os.urandom(KEY_BYTES)), serving() if tls else None
    launch, listeners = Launch(workers, settings), [listening(HOST) for _ in range(workers)]
    posts = [launch.post(worker, RUN, one, secret, context) for worker, one in enumerate(listeners)]
    pids = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")

    def serve_proxy(worker: int) -> None:
        pids[worker] = os.getpid()
        posts[worker].serve([make_optimizer(perceptron())], DEADLINE_S, DEADLINE_S, lost=end_at_once)

    def body(worker: int) -> Part:
        model, pushes = perceptron(), 0
        address = ProxyAddress(HOST, listeners[worker].getsockname()[1], secret, tls)
        end = RemoteEnd(address, RUN, settings, worker, workers, DEADLINE_S)
        joined = end.join([make_optimizer(model)])

        def push() -> None:
            nonlocal pushes
            joined.clients[0].push()
            pushes += 1

        joined.start()
        joined.begin()
        share = loop(model, push, worker, seconds, partial(cpu_seconds, [pids[worker]]))
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        version = joined.clients[0].version
        joined.detach()
        end.close()
        return Part(share, pushes, version)

    try:
        parts = run_workers(workers, body, servers=workers, serve=serve_proxy, threads=1)
        return combined(parts, launch.figures.staleness().mean())
    finally:
        launch.close()
        for listener in listeners:
            listener.close()


ON_ONE_NODE: Final = ["AsyncPS x 2", "AsyncPS x 2, process", "torch RPC server x 2", "DDP gloo x 2"]
SYSTEMS: Final = [
    *choose(engine_systems.SYSTEMS, ON_ONE_NODE, False),
    System("AsyncPS x 2, remote", remote),
    System("AsyncPS x 2, remote, TLS", partial(remote, tls=True)),
]
GOALS: Final = [
    Goal("AsyncPS x 2, remote", "torch RPC server x 2", "cpu_ms", "<= 1"),
    Goal("AsyncPS x 2, remote", "DDP gloo x 2", "cpu_ms", "<= 1.3"),
    Goal("AsyncPS x 2, remote", "AsyncPS x 2, process", "cpu_ms"),
    Goal("AsyncPS x 2, remote, TLS", "AsyncPS x 2, remote", "cpu_ms"),
]


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=5.0, help="seconds to measure each system in each turn")
    options.add_argument("--turns", type=int, default=5)
    given = options.parse_args()
    others = Others()
    turns = [{system.name: system.measure(given.seconds) for system in SYSTEMS} for _ in range(given.turns)]
    print(table({system.name: [turn[system.name] for turn in turns] for system in SYSTEMS}, GOALS), flush=True)
    print(f"\n{others.sentence()}")


if __name__ == "__main__":
    main()
