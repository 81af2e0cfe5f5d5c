"""The worker's end: a replica of the parameters, pushes and pulls."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from training.ps.hosts.inline import InlineHost, Pushed
from training.ps.layout import Layout
from training.ps.shard import Snapshot


class Replica:
    """A worker's own copy of the parameters, on its own device, laid out as in the shard: a pull is one copy.

    Making one moves the parameters' data into the flat buffer `flat` (uint8 [bytes]); their values stay.
    """

    def __init__(self, parameters: Sequence[Parameter], layout: Layout) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self.flat = torch.zeros(layout.nbytes, dtype=torch.uint8, device=device)
        for parameter, view in zip(self.parameters, layout.views(self.flat), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view

    def gradients(self) -> list[Tensor | None]:
        """The gradients, on the CPU, None where there is none."""
        return [None if p.grad is None else p.grad.to("cpu") for p in self.parameters]


class Client:
    """Pushes what the worker's optimizer would apply, and keeps the replica as new as the last push or pull.

    `version` is that of the replica. Between two calls nothing changes the replica, so a worker that neither pushes
    nor pulls holds a consistent snapshot.
    """

    def __init__(self, host: InlineHost, replica: Replica, optimizer: Optimizer) -> None:
        self._host, self._replica, self._optimizer = host, replica, optimizer
        self._is_local = replica.flat.device.type == "cpu"
        self._landing = replica.flat if self._is_local else torch.zeros_like(replica.flat, device="cpu")
        self._groups = len(optimizer.param_groups)
        self.version = 0

    def push(self) -> Pushed:
        """Hand in the gradients with the optimizer's present hyper-parameters; the replica is new afterwards."""
        if len(self._optimizer.param_groups) != self._groups:
            raise ValueError(
                "optimizer: a param group was added during training, which a parameter server does not "
                "support. Add all groups in configure_optimizers and freeze them by requires_grad."
            )
        groups = self._optimizer.param_groups
        pushed = self._host.push(self._replica.gradients(), groups, self.version, self._landing)
        self._land()
        self.version = pushed.version
        return pushed

    def pull(self) -> int:
        """Make the replica as new as the shard; returns the version."""
        self.version = self._host.pull(self._landing)
        self._land()
        return self.version

    def snapshot(self) -> Snapshot:
        """A snapshot of the shard; the replica takes its parameters, so that both are of one version."""
        snapshot = self._host.snapshot()
        self._replica.flat.copy_(snapshot.flat)
        self.version = snapshot.version
        return snapshot

    def detach(self) -> None:
        """Give every parameter memory of its own again; the client is of no use afterwards."""
        for parameter in self._replica.parameters:
            parameter.data = parameter.data.clone()

    def _land(self) -> None:
        if not self._is_local:
            self._replica.flat.copy_(self._landing)
