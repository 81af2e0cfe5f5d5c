"""Workers of a run, and what serves them, all in this process: what tests of ends drive."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.worker.worker_end import JoinedEnd, PushResult, WorkerEnd

DEADLINE_S = 20.0
Make = Callable[[Sequence[Parameter]], Optimizer]


def counting(parameters: Sequence[Parameter]) -> Optimizer:
    """With gradients of ones the parameters count the updates, downwards."""
    return SGD(parameters, lr=1.0)


def adam(parameters: Sequence[Parameter]) -> Optimizer:
    return Adam(parameters, lr=0.1)


class Peer(NamedTuple):
    """One worker that has joined, and its parameters."""

    end: WorkerEnd
    joined: JoinedEnd
    parameters: list[Parameter]

    def push(self, valid: bool = True) -> PushResult:
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)
        return self.joined.clients[0].push(valid)

    def values(self) -> set[float]:
        return {float(value) for parameter in self.parameters for value in parameter.detach().flatten()}


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Each in a thread: what they return when all have returned."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [part.result(2 * DEADLINE_S) for part in [pool.submit(call) for call in calls]]


@contextmanager
def serving(launch: Launch, make: Make) -> Iterator[None]:
    """The run's servers, in threads; when the block is over they end with the workers."""

    def serve(server: int) -> None:
        end = launch.server(server, DEADLINE_S)
        end.serve([make([Parameter(torch.zeros(3)), Parameter(torch.zeros(2, 2))])])

    servers = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(launch.servers)]
    for server in servers:
        server.start()
    yield
    for server in servers:
        server.join(2 * DEADLINE_S)
        assert not server.is_alive()
