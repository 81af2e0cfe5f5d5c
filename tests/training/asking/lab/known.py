"""Models whose answers are known. Their loss is a quadratic, or a linear regression, which is one."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 16


class Samples(lightning.LightningDataModule):
    """Points, and a linear function of them with noise. Validation data have no noise: their loss is the excess.

    Args:
        batch_size: Samples in a batch of one worker.
        samples: Samples of an epoch.
        noise: Standard deviation of the noise of training targets.
    """

    def __init__(self, batch_size: int = 4, samples: int = 2048, noise: float = 1.0) -> None:
        super().__init__()
        self.batch_size, self.samples, self.noise = batch_size, samples, noise
        self.truth = torch.linspace(-1, 1, FEATURES)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        x = torch.randn(self.samples, FEATURES)
        y = x @ self.truth + self.noise * torch.randn(self.samples)
        return DataLoader(TensorDataset(x, y), self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        x = torch.randn(256, FEATURES, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(x, x @ self.truth), 256)


class Regression(lightning.LightningModule):
    """A linear regression.

    Args:
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        features: Those that it uses, of 16: it cannot explain the others.
        work: Matrix products of 192 x 192 in each step that change nothing.
        ballast: Further parameters, in thousands, whose gradients are 0 but sent all the same.
        name: Changes nothing.
    """

    def __init__(
        self, lr: float = 0.02, momentum: float = 0.0, features: int = 16, work: int = 0, ballast: int = 0,
        name: str = "a",
    ) -> None:  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.momentum, self.features, self.work = lr, momentum, features, work
        self.weights = torch.nn.Parameter(torch.zeros(FEATURES + 1000 * ballast))
        self.matrix = torch.eye(192)

    def _loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(x[:, : self.features] @ self.weights[: self.features], y)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        busy = self.matrix
        for _ in range(self.work):
            busy = busy @ self.matrix
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("val_loss", self._loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=self.momentum)


class Noise(lightning.LightningDataModule):
    """Standard normal samples, times `spread`.

    Args:
        batch_size: Samples in a batch of one worker.
        samples: Samples of an epoch.
        spread: Their standard deviation.
    """

    def __init__(self, batch_size: int = 1, samples: int = 512, spread: float = 1.0) -> None:
        super().__init__()
        self.batch_size, self.samples, self.spread = batch_size, samples, spread

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(self.spread * torch.randn(self.samples, FEATURES)), self.batch_size)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(TensorDataset(torch.zeros(1, FEATURES)), 1)


class Quadratic(lightning.LightningModule):
    """Half the squared distance of the weights to a sample: from `start`, the gradient is that of |w|^2 / 2 with noise.

    Args:
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
    """

    def __init__(self, lr: float = 0.1, momentum: float = 0.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.momentum = lr, momentum
        self.weights = torch.nn.Parameter(torch.ones(FEATURES))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = (self.weights - batch[0]).square().sum(1).mean() / 2
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val_loss", self.weights.square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=self.momentum)
