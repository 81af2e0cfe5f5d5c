"""The real engine without processes: all workers of a run in one process, so that a test says who pushes when.

Workers and servers join in threads, as processes would; afterwards the test drives the clients itself.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine import Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.memory.device import Device

DEADLINE_S = 20.0
Make = Callable[[Sequence[Parameter]], Optimizer]


class Driven:
    """`joined[w]` is worker w; its parameters are `replicas[w]`."""

    def __init__(self, run: SharedRun, joined: list[Joined], replicas: list[list[Parameter]]) -> None:
        self.run, self.joined, self.replicas = run, joined, replicas

    def push(self, worker: int, gradients: Sequence[Tensor | None], valid: bool = True) -> bool:
        """One push of one worker; whether it was let in."""
        for parameter, gradient in zip(self.replicas[worker], gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        return self.joined[worker].clients[0].push(valid).applied

    def newest(self) -> list[Tensor]:
        """The parameters when all that was pushed is applied, copied; makes worker 0's replica new."""
        self.run.control.clock.play(self.joined[0].clients[0].host.flush())
        self.joined[0].pull()
        return [parameter.detach().clone() for parameter in self.replicas[0]]


@contextmanager
def driven(
    workers: int,
    settings: Settings,
    start: Sequence[Tensor],
    make: Make,
    device: Callable[[int], Device | None] = lambda worker: None,
) -> Iterator[Driven]:
    """All workers of a run that begins with the parameters `start`; all have begun, in order. `device`: each one's."""
    run = SharedRun(workers, settings)
    replicas = [[Parameter(tensor.clone()) for tensor in start] for _ in range(workers)]
    servers = [
        threading.Thread(target=serve, args=(run, number, DEADLINE_S, [make([Parameter(t.clone()) for t in start])]))
        for number in range(run.servers)
    ]
    for server in servers:
        server.start()
    with ThreadPoolExecutor(workers) as pool:
        parts = [
            pool.submit(join, run, run.member(w, DEADLINE_S), [make(replicas[w])], device=device(w))
            for w in range(workers)
        ]
        joined = [part.result(DEADLINE_S) for part in parts]
    try:
        for one in joined:
            one.begin()
        yield Driven(run, joined, replicas)
    finally:
        for one in joined:
            one.finish()
        for server in servers:
            server.join(DEADLINE_S)
            assert not server.is_alive()
        for one in joined:
            one.detach()
        run.close()


def random_tensors(shapes: Sequence[tuple[int, ...]], seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Normal random numbers, one tensor for each shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]
