"""MXNet's `dist_async` key-value store; `python mxnet_ps.py --row ROW --seconds S` prints one row as JSON.

A scheduler, one server and two workers, each a process of its own on the loopback interface; the server applies each
gradient on arrival. It does not say how stale a gradient is. Needs mxnet, psutil; nothing of Scalebook. Python 3.8.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import time
from typing import Any

import psutil

BATCH, SAMPLES, LEARNING_RATE, WARM_UP_S, DEADLINE_S = 64, 4096, 0.01, 0.5, 60.0


def train(worker: int, seconds: float, server: int, store: str | None) -> list[float]:
    """Gradients, seconds, CPU seconds (with those of the server whose pid is given, unless 0) while measured."""
    import mxnet as mx  # type: ignore[import-not-found]  # only in this script's own environment
    from mxnet.gluon import Trainer, loss, nn  # type: ignore[import-not-found]  # only in this script's own environment

    mx.random.seed(0)
    model = nn.HybridSequential()
    model.add(nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10))
    model.initialize()
    model.hybridize(static_alloc=True, static_shape=True)
    inputs = mx.nd.random.uniform(shape=(SAMPLES, 784))
    labels = mx.nd.random.randint(0, 10, shape=(SAMPLES,)).astype("float32")
    criterion = loss.SoftmaxCrossEntropyLoss()
    settings: dict[str, Any] = {"learning_rate": LEARNING_RATE}
    trainer = Trainer(model.collect_params(), "sgd", settings, kvstore=store, update_on_kvstore=True if store else None)
    watched = [psutil.Process(pid) for pid in (os.getpid(), server) if pid]

    def run_for(duration_s: float) -> int:
        steps, until = 0, time.perf_counter() + duration_s
        while time.perf_counter() < until:
            start = steps * BATCH % SAMPLES
            with mx.autograd.record():
                value = criterion(model(inputs[start : start + BATCH]), labels[start : start + BATCH])
            value.backward()
            trainer.step(BATCH)
            mx.nd.waitall()  # operations are queued: without this the loop runs ahead of them
            steps += 1
        return steps

    run_for(WARM_UP_S)
    started, cpu_s = time.perf_counter(), cpu_seconds(watched)
    gradients = run_for(seconds)
    return [gradients, time.perf_counter() - started, cpu_seconds(watched) - cpu_s]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def start(role: str, port: int, workers: int, command: list[str], **more: str) -> subprocess.Popen[str]:
    """Start a process of the cluster; in the roles scheduler and server, `import mxnet` runs it to its end."""
    environment = {
        **os.environ,
        **more,
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(workers),
    }
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)


def served(seconds: float, workers: int) -> list[list[float]]:
    """The results of `train`, of each worker."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    cluster = [start(role, port, workers, ["-c", "import mxnet"]) for role in ("scheduler", "server")]
    try:
        for worker in range(workers):
            command = [__file__, "--worker", str(worker), "--seconds", str(seconds)]
            cluster.append(start("worker", port, workers, command, SERVER_PID=str(0 if worker else cluster[1].pid)))
        return [json.loads(process.communicate(timeout=DEADLINE_S)[0]) for process in cluster[2:]]
    finally:
        for process in cluster:
            process.kill()
            process.wait()


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", choices=["one process", "parameter server x 2"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--worker", type=int, help="for this script's own use")
    given = parser.parse_args()
    if given.worker is not None:
        print(json.dumps(train(given.worker, given.seconds, int(os.environ["SERVER_PID"]), "dist_async")), flush=True)
        return
    alone = given.row == "one process"
    shares = [train(0, given.seconds, 0, None)] if alone else served(given.seconds, 2)
    gradients = sum(share[0] for share in shares)
    rate = gradients / max(share[1] for share in shares)
    cpu_ms = 1000 * sum(share[2] for share in shares) / gradients
    staleness = 0.0 if alone else math.nan
    print(json.dumps({"updates_per_s": rate, "gradients_per_s": rate, "cpu_ms": cpu_ms, "staleness": staleness}))


if __name__ == "__main__":
    main()
