"""The parameter server (training/engine), used without Lightning: any rule, host, number of shards, optimizer."""

import mmap
import os
from functools import partial
from typing import NamedTuple

from benchmarks.engine_baselines import cpu_seconds
from benchmarks.engine_task import Measured, OptimizerName, Share, loop, make_optimizer, perceptron, together
from scalebook.training.engine import Settings, SharedRun, join, serve
from scalebook.training.lightning.processes.run_workers import run_workers

DEADLINE_S = 60.0


class Part(NamedTuple):
    """What a worker reports; `gradients` and `version` are of its whole life, warm-up included."""

    share: Share
    gradients: int
    version: int


def parameter_server(seconds: float, workers: int, settings: Settings, optimizer: OptimizerName = "SGD") -> Measured:
    """One measurement; the CPU time of server processes counts."""
    run = SharedRun(workers, settings)
    pids = memoryview(mmap.mmap(-1, 8 * max(1, run.servers))).cast("q")

    def body(worker: int) -> Part:
        model, gradients = perceptron(), 0
        membership = run.member(worker, DEADLINE_S)
        joined = join(run, membership, [make_optimizer(model, optimizer)])
        (client,) = joined.clients

        def push() -> None:
            nonlocal gradients
            client.push()
            gradients += 1

        joined.begin()
        servers = pids[: run.servers] if worker == 0 else pids[:0]  # filled in by then
        share = loop(model, push, worker, seconds, partial(cpu_seconds, servers))
        joined.finish()
        return Part(share, gradients, client.pull())

    def serve_shard(server: int) -> None:
        pids[server] = os.getpid()
        serve(run, server, DEADLINE_S, [make_optimizer(perceptron(), optimizer)])

    try:
        parts = run_workers(workers, body, servers=run.servers, serve=serve_shard if run.servers else None)
        return combined(parts, run.staleness().mean())
    finally:
        run.close()


def combined(parts: list[Part], staleness: float) -> Measured:
    """The rates of workers that pushed to the same shards."""
    updates_per_gradient = max(part.version for part in parts) / sum(part.gradients for part in parts)
    return together([part.share for part in parts], updates_per_gradient, staleness)
