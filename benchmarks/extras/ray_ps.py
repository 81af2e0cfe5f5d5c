"""An asynchronous parameter server of Ray actors; `python ray_ps.py --row ROW --seconds S` prints one row as JSON.

The idea of Ray's example "Parameter Server" (asynchronous part): one actor holds the parameters and applies gradients,
workers are actors too. Here each worker calls the server itself instead of a driver that hands objects about, which is
the faster form. Needs ray, torch, psutil; nothing of Scalebook.
"""

import argparse
import json
import os
import time
from typing import Any

import psutil
import ray  # only in this script's own environment
import torch
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy

BATCH, SAMPLES, LEARNING_RATE, WARM_UP_S = 64, 4096, 0.01, 0.5


def perceptron() -> Sequential:
    torch.manual_seed(0)
    return Sequential(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10))


class Server:
    """Parameters as a list of NumPy arrays; one call per gradient."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.parameters = list(perceptron().parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE)
        self.version, self.staleness = 0, 0

    def push(self, gradients: list[Any], base_version: int) -> tuple[list[Any], int]:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = torch.as_tensor(gradient)
        self.optimizer.step()
        self.staleness += self.version - base_version
        self.version += 1
        return [parameter.detach().numpy() for parameter in self.parameters], self.version  # serialised at once

    def mean_staleness(self) -> float:
        return self.staleness / self.version

    def pid(self) -> int:
        return os.getpid()


class Worker:
    """Computes gradients; without a server it applies them itself."""

    def __init__(self, number: int, server: Any) -> None:
        torch.set_num_threads(1)
        self.number, self.server, self.version = number, server, 0
        self.model = perceptron()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE)

    def ready(self) -> bool:
        return True

    def apply(self) -> None:
        if self.server is None:
            self.optimizer.step()
            return
        gradients = [parameter.grad.numpy() for parameter in self.parameters if parameter.grad is not None]
        newest, self.version = ray.get(self.server.push.remote(gradients, self.version))
        with torch.no_grad():
            for parameter, value in zip(self.parameters, newest, strict=True):
                parameter.copy_(torch.from_numpy(value))  # what Ray hands out is read-only

    def train(self, seconds: float, server: int) -> tuple[int, float, float]:
        """Gradients, seconds, CPU seconds (of the server with pid `server` too, unless 0) while measured."""
        generator = torch.Generator().manual_seed(self.number)
        inputs = torch.rand(SAMPLES, 784, generator=generator)
        labels = torch.randint(10, (SAMPLES,), generator=generator)
        watched = [psutil.Process(pid) for pid in (os.getpid(), server) if pid]

        def run_for(duration_s: float) -> int:
            steps, until = 0, time.perf_counter() + duration_s
            while time.perf_counter() < until:
                start = steps * BATCH % SAMPLES
                self.optimizer.zero_grad()
                torch.autograd.backward(
                    cross_entropy(self.model(inputs[start : start + BATCH]), labels[start : start + BATCH])
                )
                self.apply()
                steps += 1
            return steps

        run_for(WARM_UP_S)
        started, cpu_s = time.perf_counter(), cpu_seconds(watched)
        gradients = run_for(seconds)
        return gradients, time.perf_counter() - started, cpu_seconds(watched) - cpu_s


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", choices=["one process", "parameter server x 2"], required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # loopback only
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    server, pid, workers = None, 0, 1
    if given.row != "one process":
        server, workers = ray.remote(Server).remote(), 2
        pid = ray.get(server.pid.remote())
    made = [ray.remote(Worker).remote(number, server) for number in range(workers)]
    ray.get([worker.ready.remote() for worker in made])  # so that they start together
    shares = ray.get(
        [worker.train.remote(given.seconds, pid if number == 0 else 0) for number, worker in enumerate(made)]
    )
    gradients = sum(share[0] for share in shares)
    rate = gradients / max(share[1] for share in shares)
    row = {
        "updates_per_s": rate,
        "gradients_per_s": rate,
        "cpu_ms": 1000 * sum(share[2] for share in shares) / gradients,
        "staleness": 0.0 if server is None else ray.get(server.mean_staleness.remote()),
    }
    ray.shutdown()
    print(json.dumps(row))


if __name__ == "__main__":
    main()
