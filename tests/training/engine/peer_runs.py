"""Runs of peers on a simulated clock, with gradients that a test gives them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.engine.worker.peer_client import PeerClient
from tests.training.engine.sim.works import Asked

Gradient = Callable[[int, int, Tensor], Tensor]
"""Of a worker, its step from 0 on, and its parameters."""


@dataclass
class PeerRun:
    """What a run has left: each peer's parameters, the mean, and of each moment before a push all peers' parameters."""

    parameters: dict[int, Tensor]
    mean: Tensor
    clock: SimulatedClock
    run: SharedRun
    versions: int
    history: list[Tensor] = field(default_factory=list)  # [workers, ...], once all have made another step
    means: list[Tensor] = field(default_factory=list)  # then
    changed: int = 0  # how often a peer's parameters were others when its gradient was due than after its last push

    def distances(self) -> list[float]:
        """The squared consensus distance, the mean of ||x_i - mean||^2 over the peers, at each moment of `history`."""
        return [float((state - state.mean(0)).square().sum(1).mean()) for state in self.history]


def run_peers(
    peering: Peering,
    workers: int,
    steps: int,
    gradient: Gradient,
    start: Tensor,
    make: Callable[[Sequence[Parameter]], Optimizer] = lambda parameters: SGD(parameters, lr=1.0),
    clock: ClockSettings | None = None,
    max_updates: int | None = None,
    watches: bool = False,
) -> PeerRun:
    """`steps` gradients of each worker, one after the other at equal speed unless `clock` says otherwise."""
    timing = clock or ClockSettings(gradient_s=1.0)
    settings = Settings(host="virtual", clock=timing, local=peering, max_updates=max_updates)
    played = SimulatedClock(timing, workers)
    run = SharedRun(workers, settings, played)
    parameters: dict[int, Parameter] = {}
    made_steps, taken = [0] * workers, [0] * workers

    def made(worker: int) -> list[Optimizer]:
        parameters[worker] = Parameter(start.clone())
        return [make([parameters[worker]])]

    def wants(worker: int) -> bool:
        taken[worker] += taken[worker] < steps
        is_over = max_updates is not None and run.counts().updates >= max_updates
        return made_steps[worker] < steps and not is_over

    virtual = SimulatedWorkers(run, played, made, Asked(wants))
    virtual.start()
    virtual.begin_all()
    history, means = list[Tensor](), list[Tensor]()
    after: dict[int, Tensor] = {}
    changed = 0
    while (worker := virtual.next()) is not None:
        if watches and made_steps[worker] == len(history) and min(made_steps) == made_steps[worker]:
            history.append(torch.stack([parameters[w].detach().clone() for w in range(workers)]))
            means.append(mean_of(virtual))
        changed += worker in after and not torch.equal(after[worker], parameters[worker])
        parameters[worker].grad = gradient(worker, made_steps[worker], parameters[worker].detach())
        made_steps[worker] += 1
        virtual.push()
        after[worker] = parameters[worker].detach().clone()
    left = PeerRun(
        {w: p.detach().clone() for w, p in parameters.items()},
        mean_of(virtual),
        played,
        run,
        virtual.joined[0].clients[0].version,
        history,
        means,
        changed,
    )
    virtual.detach()
    run.close()
    return left


def mean_of(virtual: SimulatedWorkers) -> Tensor:
    """What would be validated now."""
    client = virtual.joined[min(virtual.run.control.living())].clients[0]
    assert isinstance(client, PeerClient)
    return client.mean()[0].clone()
