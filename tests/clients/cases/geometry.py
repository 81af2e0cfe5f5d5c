"""Weights on a manifold, networks that respect rotations, images and their edges."""

from typing import Any

import geoopt
import kornia
import torch
from e3nn import o3
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order, loader
from tests.clients.fitting import Simple, trained


class Orthogonal(Simple):
    """A rotation before a classifier, by geoopt's optimizer, which steps along the manifold."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__()
        self.optimizer = optimizer
        start = torch.linalg.qr(torch.randn(8, 8))[0]
        self.rotation = geoopt.ManifoldParameter(start, manifold=geoopt.Stiefel())
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy(self.net(batch[0] @ self.rotation), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = self.optimizer(self.parameters())
        return made


def _on_manifold(setting: Setting, optimizer: Any) -> dict[str, float]:
    """`off`: how far the matrix is from an orthogonal one."""
    training = in_order(setting, *clusters(240))
    model, found = trained(setting, lambda: Orthogonal(optimizer), training, held_out())
    off = (model.rotation.detach().T @ model.rotation.detach() - torch.eye(8)).abs().max()
    return {"off": float(off), **found}


def riemannian_sgd(setting: Setting) -> dict[str, float]:
    return _on_manifold(setting, lambda p: geoopt.optim.RiemannianSGD(p, 0.05, momentum=0.9))


def riemannian_adam(setting: Setting) -> dict[str, float]:
    return _on_manifold(setting, lambda p: geoopt.optim.RiemannianAdam(p, 0.01))


class Equivariant(Simple):
    """A cloud of five points to a vector that turns with it."""

    rate = 0.02

    def __init__(self) -> None:
        super().__init__()
        self.harmonics = o3.Irreps("0e + 1o + 2e")
        self.product = o3.FullyConnectedTensorProduct(self.harmonics, self.harmonics, "4x0e + 4x1o")
        self.last = o3.Linear("4x0e + 4x1o", "1o")

    def loss(self, batch: Any) -> Tensor:
        points, targets = batch
        found = o3.spherical_harmonics(self.harmonics, points, normalize=False).mean(1)
        return mse_loss(self.last(self.product(found, found)), targets)


def e3nn_vectors(setting: Setting) -> dict[str, float]:
    points = torch.randn(304, 5, 3, generator=torch.Generator().manual_seed(3))
    vectors = points.mean(1) * points.pow(2).mean((1, 2))[:, None]
    training, validation = in_order(setting, points[:240], vectors[:240]), loader(points[240:], vectors[240:])
    return trained(setting, Equivariant, training, validation)[1]


class Deblurring(Simple):
    """By likeness of structure and of edges."""

    rate = 0.02

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 1, 3, padding=1)
        )

    def loss(self, batch: Any) -> Tensor:
        (sharp,) = batch
        made = self.net(kornia.filters.gaussian_blur2d(sharp, (3, 3), (1.0, 1.0)))
        edges = mse_loss(kornia.filters.sobel(made), kornia.filters.sobel(sharp))
        loss: Tensor = kornia.losses.ssim_loss(made, sharp, window_size=5) + edges
        return loss


def kornia_deblurring(setting: Setting) -> dict[str, float]:
    images = torch.rand(304, 1, 8, 8, generator=torch.Generator().manual_seed(4))
    return trained(setting, Deblurring, in_order(setting, images[:240]), loader(images[240:]))[1]
