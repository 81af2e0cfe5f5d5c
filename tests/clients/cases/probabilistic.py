"""Likelihoods: a Gaussian process with inducing points, Bayesian regression by variational inference, a flow."""

from typing import Any

import gpytorch
import pyro
import torch
import zuko
from pyro.distributions import LogNormal, Normal
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.nn import PyroModule, PyroSample
from torch import Tensor

from tests.clients.case import Setting
from tests.clients.cases.data import in_order, loader
from tests.clients.fitting import Simple, trained

SAMPLES = 240


def wave(samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    inputs = 2 * torch.rand(samples, 1, generator=draws) - 1
    return inputs, torch.sin(3 * inputs[:, 0]) + 0.1 * torch.randn(samples, generator=draws)


class Approximate(gpytorch.models.ApproximateGP):  # type: ignore[misc]  # the library is not here for mypy
    """As in gpytorch's tutorial of stochastic variational regression."""

    def __init__(self, inducing: Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, inputs: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))


class GaussianProcess(Simple):
    """Its variational distribution begins in the first forward pass."""

    rate = 0.005

    def __init__(self) -> None:
        super().__init__()
        self.process = Approximate(torch.linspace(-1, 1, 8)[:, None])
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.process, num_data=SAMPLES)

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = -self.bound(self.process(batch[0]), batch[1])
        return loss


class BegunProcess(GaussianProcess):
    """With the pass that the error asks for; its draws are seeded, as processes have streams of their own."""

    def configure_model(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            self.process(wave(8)[0])


def svgp(setting: Setting) -> dict[str, float]:
    return trained(setting, GaussianProcess, in_order(setting, *wave(SAMPLES)), loader(*wave(64, 1)))[1]


def begun_svgp(setting: Setting) -> dict[str, float]:
    return trained(setting, BegunProcess, in_order(setting, *wave(SAMPLES)), loader(*wave(64, 1)))[1]


class Regression(PyroModule):  # type: ignore[misc]  # the library is not here for mypy
    """Of which a batch is a part of the plate."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](1, 1)
        self.linear.weight = PyroSample(Normal(0.0, 1.0).expand([1, 1]).to_event(2))
        self.linear.bias = PyroSample(Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, inputs: Tensor, targets: Tensor) -> None:
        noise = pyro.sample("noise", LogNormal(0.0, 1.0))
        mean = self.linear(inputs)[:, 0]
        with pyro.plate("samples", SAMPLES, subsample=inputs):
            pyro.sample("targets", Normal(mean, noise), obs=targets)


class MaximumAPosteriori(Simple):
    """As in Pyro's example for Lightning, with a guide that draws nothing."""

    rate = 2e-5

    def __init__(self) -> None:
        super().__init__()
        pyro.settings.set(module_local_params=True)
        model = Regression()
        self.bound = Trace_ELBO()(model, AutoDelta(model))
        self.bound(*wave(8))

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = self.bound(*batch)
        return loss


def pyro_regression(setting: Setting) -> dict[str, float]:
    return trained(setting, MaximumAPosteriori, in_order(setting, *wave(SAMPLES)), loader(*wave(64, 1)))[1]


class Flow(Simple):
    """Masked autoregressive: of an input and its wave."""

    rate = 0.002

    def __init__(self) -> None:
        super().__init__()
        self.flow = zuko.flows.MAF(2, 0, transforms=2, hidden_features=(16,))

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = -self.flow().log_prob(torch.cat([batch[0], batch[1][:, None]], dim=1)).mean()
        return loss


def zuko_flow(setting: Setting) -> dict[str, float]:
    return trained(setting, Flow, in_order(setting, *wave(SAMPLES)), loader(*wave(64, 1)))[1]
