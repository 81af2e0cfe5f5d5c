"""What a worker on another node costs: a push and a pull of 2.7 MB each, over loopback, beside torch RPC and DDP.

Each gradient is computed as in `benchmarks.engine`, which is part of the CPU time; that of the channel is of both ends,
worker and proxy. Systems take turns, and ratios are within one turn.

    python -m benchmarks.cluster [--seconds 5] [--repeats 5]
"""

import argparse
import mmap
import os
import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.engine_baselines import cpu_seconds, ddp, rpc_server, unconnected
from benchmarks.engine_ps import DEADLINE_S, Part, parameter_server
from benchmarks.engine_task import Measured, loop, make_optimizer, perceptron, together
from benchmarks.machine import machine
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.channel import ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Secret, serving
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.lightning.processes.run_workers import run_workers

HOST = "127.0.0.1"
RUN = "benchmark"
WORKERS = 2


def end_at_once(why: str) -> None:
    """End a proxy whose worker is dead; it may be blocked in a wait."""
    print(why, flush=True)
    os._exit(1)


def far_away(seconds: float, workers: int, settings: Settings, tls: bool = False) -> Measured:
    """Workers that reach the shards over loopback, as from other nodes; each proxy is a process."""
    secret, context = Secret(os.urandom(KEY_BYTES)), serving() if tls else None
    launch, listeners = Launch(workers, settings), [listening(HOST) for _ in range(workers)]
    posts = [launch.post(worker, RUN, one, secret, context) for worker, one in enumerate(listeners)]
    pids = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")

    def stand_in(worker: int) -> None:
        pids[worker] = os.getpid()
        posts[worker].serve([make_optimizer(perceptron())], DEADLINE_S, DEADLINE_S, lost=end_at_once)

    def body(worker: int) -> Part:
        model, gradients = perceptron(), 0
        reach = ProxyAddress(HOST, listeners[worker].getsockname()[1], secret, tls)
        end = RemoteEnd(reach, RUN, settings, worker, workers, DEADLINE_S)
        joined = end.join([make_optimizer(model)])
        (client,) = joined.clients

        def push() -> None:
            nonlocal gradients
            client.push()
            gradients += 1

        joined.start()
        joined.begin()
        share = loop(model, push, worker, seconds, partial(cpu_seconds, [pids[worker]]))
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        version = client.version
        joined.detach()
        end.close()
        return Part(share, gradients, version)

    try:
        parts = run_workers(workers, body, servers=workers, serve=stand_in)
        updates_per_gradient = max(part.version for part in parts) / sum(part.gradients for part in parts)
        shares = [part.share for part in parts]
        return together(shares, updates_per_gradient, launch.figures.staleness().mean())
    finally:
        launch.close()
        for listener in listeners:
            listener.close()


SYSTEMS: dict[str, Callable[[float], Measured]] = {
    "one process": lambda seconds: unconnected(seconds, 1),
    "AsyncPS x 2": lambda seconds: parameter_server(seconds, WORKERS, Settings()),
    "AsyncPS x 2, process": lambda seconds: parameter_server(seconds, WORKERS, Settings(host="process")),
    "AsyncPS x 2, remote": lambda seconds: far_away(seconds, WORKERS, Settings()),
    "AsyncPS x 2, remote, TLS": lambda seconds: far_away(seconds, WORKERS, Settings(), tls=True),
    "torch RPC server x 2": lambda seconds: rpc_server(seconds, WORKERS),
    "DDP gloo x 2": lambda seconds: ddp(seconds, WORKERS),
}
RATIOS = [
    ("AsyncPS x 2, remote", "torch RPC server x 2", "<= 1"),
    ("AsyncPS x 2, remote", "DDP gloo x 2", "<= 1.3"),
    ("AsyncPS x 2, remote", "AsyncPS x 2, process", "-"),
    ("AsyncPS x 2, remote, TLS", "AsyncPS x 2, remote", "-"),
]


def measure(seconds: float, repeats: int) -> dict[str, list[Measured]]:
    """Measure each system once in each turn."""
    results: dict[str, list[Measured]] = {name: [] for name in SYSTEMS}
    for _ in range(repeats):
        for name, system in SYSTEMS.items():
            results[name].append(system(seconds))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds to measure each system in each turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    arguments = parser.parse_args()
    results = measure(arguments.seconds, arguments.repeats)
    print(machine())
    print("\n| system | updates/s | gradients/s | CPU ms per gradient | staleness |\n|---|---:|---:|---:|---:|")
    for name, turns in results.items():
        medians = [statistics.median(values) for values in zip(*turns, strict=True)]
        print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in medians) + " |")
    print("\n| ratio of CPU per gradient | median | range | goal |\n|---|---:|---:|---:|")
    for one, other, goal in RATIOS:
        ratios = [a.cpu_ms / b.cpu_ms for a, b in zip(results[one], results[other], strict=True)]
        print(f"| {one} / {other} | {statistics.median(ratios):.2f} | {min(ratios):.2f} – {max(ratios):.2f} | {goal} |")


if __name__ == "__main__":
    main()
