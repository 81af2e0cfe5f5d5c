"""What the parameter server is compared with: no connection at all, DDP, hogwild, and a server behind torch's RPC."""

import math
import mmap
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import torch.distributed as dist
from torch import Tensor
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

from benchmarks.engine_task import (
    STEPS_PER_S,
    WARM_UP_STEPS,
    Measured,
    OptimizerName,
    Share,
    backward,
    loop,
    make_optimizer,
    perceptron,
    samples,
    together,
)
from scalebook.training.lightning.processes.run_workers import run_workers

RPC_TIMEOUT_S: Final = 60.0
LOOPBACK: Final = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}


def unconnected(seconds: float, processes: int, optimizer: OptimizerName = "SGD") -> Measured:
    """The plain loop, in forked processes that share nothing: the limit of the machine."""

    def body(worker: int) -> Share:
        model = perceptron()
        return loop(model, make_optimizer(model, optimizer).step, worker, seconds)

    return together(run_workers(processes, body))


def hogwild(seconds: float, workers: int) -> Measured:
    """One model in shared memory, on which all workers compute and step without any lock (Recht et al. 2011).

    Writes may be lost or mixed, and there is no version, so the staleness is unknown.
    """
    model = perceptron().share_memory()

    def body(worker: int) -> Share:
        return loop(model, make_optimizer(model).step, worker, seconds)

    return together(run_workers(workers, body), staleness=math.nan)


def ddp(seconds: float, workers: int, optimizer: OptimizerName = "SGD") -> Measured:
    """torch's DistributedDataParallel over gloo; a step of all workers is one update."""
    steps = max(1, int(seconds * STEPS_PER_S))  # counted, not timed: the ranks must agree when to end

    def body(worker: int, store: Path) -> Share:
        os.environ.update(LOOPBACK)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=worker, world_size=workers)
        model = DistributedDataParallel(perceptron())
        own, (inputs, labels) = make_optimizer(model, optimizer), samples(worker)
        started, cpu_s = 0.0, 0.0
        for step in range(-WARM_UP_STEPS, steps):
            if step == 0:
                started, cpu_s = time.perf_counter(), time.process_time()
            own.zero_grad()
            backward(model, inputs, labels, step)
            own.step()
        return Share(steps, time.perf_counter() - started, time.process_time() - cpu_s)

    with tempfile.TemporaryDirectory() as folder:
        return together(
            run_workers(workers, partial(body, store=Path(folder, "store"))), updates_per_gradient=1 / workers
        )


class RpcServer:
    """Parameters and optimizer in a process of their own; each call applies one gradient and answers with a copy.

    The idea of torch's tutorial "Implementing a Parameter Server Using Distributed RPC Framework", asynchronous.
    """

    def __init__(self) -> None:
        self._model, self._lock = perceptron(), threading.Lock()
        self._optimizer = make_optimizer(self._model)
        self._version, self._staleness = 0, 0

    def push(self, gradients: list[Tensor], base_version: int) -> tuple[list[Tensor], int]:
        """Apply the gradients; returns the new parameters and their version."""
        with self._lock:
            for parameter, gradient in zip(self._model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
            self._staleness += self._version - base_version
            self._version += 1
            return [parameter.detach().clone() for parameter in self._model.parameters()], self._version

    def mean_staleness(self) -> float:
        """Mean over all gradients so far."""
        return self._staleness / self._version


SERVER: RpcServer | None = None  # in the server process: what a remote call finds


def remote_push(gradients: list[Tensor], base_version: int) -> tuple[list[Tensor], int]:
    """Runs in the server process."""
    assert SERVER is not None
    return SERVER.push(gradients, base_version)


def remote_staleness() -> float:
    """Runs in the server process."""
    assert SERVER is not None
    return SERVER.mean_staleness()


def rpc_server(seconds: float, workers: int) -> Measured:
    """Asynchronous SGD against a server behind torch.distributed.rpc (TensorPipe, loopback); the server is rank 0."""
    pids = mmap.mmap(-1, 8)
    pid = memoryview(pids).cast("q")

    def body(rank: int, store: Path) -> tuple[Share, float] | None:
        global SERVER  # remote functions find the server by its module, as in the tutorial
        os.environ.update(LOOPBACK)
        warnings.filterwarnings("ignore", message=".*as a ProcessGroup", category=UserWarning)  # of torch about its RPC
        if rank == 0:
            SERVER, pid[0] = RpcServer(), os.getpid()
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
        rpc.init_rpc(  # type: ignore[no-untyped-call]  # torch has not annotated it
            f"rank{rank}", rank=rank, world_size=workers + 1, rpc_backend_options=options
        )
        try:
            return None if rank == 0 else rpc_worker(rank - 1, seconds, pid[0] if rank == 1 else None)
        finally:
            rpc.shutdown(timeout=RPC_TIMEOUT_S)

    with tempfile.TemporaryDirectory() as folder:
        parts = run_workers(workers + 1, partial(body, store=Path(folder, "store")))[1:]
    return together([share for share, _ in parts], staleness=parts[0][1])


def rpc_worker(worker: int, seconds: float, server: int | None) -> tuple[Share, float]:
    """Train against rank 0; the worker that gets its pid counts its CPU time."""
    model, version = perceptron(), 0
    parameters = list(model.parameters())

    def apply() -> None:
        nonlocal version
        gradients = [parameter.grad for parameter in parameters]
        newest, version = rpc.rpc_sync("rank0", remote_push, args=(gradients, version))
        for parameter, value in zip(parameters, newest, strict=True):
            parameter.data = value

    share = loop(model, apply, worker, seconds, partial(cpu_seconds, [server] if server else []))
    staleness: float = rpc.rpc_sync("rank0", remote_staleness)
    return share, staleness


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of running processes so far, in steps of a clock tick (10 ms)."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(time.user + time.system for time in times)
