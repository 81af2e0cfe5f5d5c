"""Networks that run through time: spiking neurons, neural differential equations, without and with noise."""

from typing import Any

import snntorch
import torch
import torchdiffeq
import torchsde
from snntorch import surrogate
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import Simple, trained


class Spiking(Simple):
    """Two layers of leaky neurons, five steps; the class is the neuron with the highest membrane potentials."""

    def __init__(self) -> None:
        super().__init__()
        spikes = surrogate.atan()
        self.first, self.hidden = torch.nn.Linear(8, 16), snntorch.Leaky(beta=0.9, spike_grad=spikes)
        self.last, self.output = torch.nn.Linear(16, 4), snntorch.Leaky(beta=0.9, spike_grad=spikes)

    def loss(self, batch: Any) -> Tensor:
        inner, outer, potentials = self.hidden.init_leaky(), self.output.init_leaky(), list[Tensor]()
        for _ in range(5):
            spikes, inner = self.hidden(self.first(batch[0]), inner)
            _, outer = self.output(self.last(spikes), outer)
            potentials.append(outer)
        return cross_entropy(torch.stack(potentials).mean(0), batch[1])


class Ode(Simple):
    """Trained by the adjoint method, with steps of a fixed size."""

    def __init__(self) -> None:
        super().__init__()
        self.field = Field()
        self.head = torch.nn.Linear(8, 4)

    def loss(self, batch: Any) -> Tensor:
        ends = torchdiffeq.odeint_adjoint(
            self.field, batch[0], torch.tensor([0.0, 1.0]), method="rk4", options={"step_size": 0.25}
        )
        return cross_entropy(self.head(ends[-1]), batch[1])


class Field(torch.nn.Module):
    """The derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))

    def forward(self, time: Tensor, state: Tensor) -> Tensor:
        change: Tensor = self.net(state)
        return change


class Drift(torch.nn.Module):
    """With a noise that is learned too."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.field = Field()
        self.spread = torch.nn.Parameter(torch.full((8,), 0.5))

    def f(self, time: Tensor, state: Tensor) -> Tensor:
        change: Tensor = self.field(time, state)
        return change

    def g(self, time: Tensor, state: Tensor) -> Tensor:
        return self.spread.expand_as(state)


class Sde(Simple):
    """A point is to reach half of itself; each process draws its own paths."""

    def __init__(self) -> None:
        super().__init__()
        self.drift = Drift()

    def loss(self, batch: Any) -> Tensor:
        ends = torchsde.sdeint(self.drift, batch[0], torch.tensor([0.0, 1.0]), dt=0.25, method="euler")[-1]
        return mse_loss(ends, 0.5 * batch[0])


def spiking(setting: Setting) -> dict[str, float]:
    return trained(setting, Spiking, in_order(setting, *clusters(240)), held_out())[1]


def ode(setting: Setting) -> dict[str, float]:
    return trained(setting, Ode, in_order(setting, *clusters(240)), held_out())[1]


def sde(setting: Setting) -> dict[str, float]:
    return trained(setting, Sde, in_order(setting, *clusters(240)), held_out())[1]
