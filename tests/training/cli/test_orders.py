"""The order of a user's own samples: the same with one process as with several, so that equal seeds are pairs."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.cli.lightning_cli import TrainingCLI

SAMPLES = 96


class Drawn(LightningDataModule):
    """As most people write it."""

    def __init__(self, batch_size: int = 16, shuffle: bool = True) -> None:
        super().__init__()
        self.batch_size, self.shuffle = batch_size, shuffle

    def train_dataloader(self) -> DataLoader[Any]:
        x = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(3))
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=self.batch_size, shuffle=self.shuffle)


class Line(LightningModule):
    """Draws random numbers in its steps, as dropout does."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(5, 1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        torch.rand(1)
        return mse_loss(self.line(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.1, momentum=0.9)


def trained(strategy: Any = "auto", batch_size: int = 16, **more: Any) -> Tensor:
    """All weights after two epochs of one seed."""
    data = {"batch_size": batch_size, "shuffle": more.pop("shuffle", True)}
    trainer = {
        "strategy": strategy, "accelerator": "cpu", "max_epochs": 2, "enable_model_summary": False,
        "enable_progress_bar": False, "devices": 1, **more,
    }  # fmt: skip
    config = {
        "seed_everything": 5, "trainer": trainer, "model": {"class_path": f"{__name__}.Line"},
        "data": {"class_path": f"{__name__}.Drawn", "init_args": data},
    }  # fmt: skip
    model = TrainingCLI("fit", config, None).model
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def strategy(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": arguments}


VIRTUAL: dict[str, Any] = {"host": "virtual", "clock": {"gradient_s": 1.0}}


@pytest.mark.parametrize(
    ("given", "batch_size", "devices"),
    [
        (strategy("AsyncPS"), 16, 1),
        (strategy("AsyncPS", workers=1, **VIRTUAL), 16, 1),
        (strategy("Peers"), 16, 1),
        ("ddp", 16, 1),
        ("ddp", 8, 2),
        (strategy("AsyncPS", rule="sync"), 8, 2),
        (strategy("AsyncPS", rule="sync", workers=4, **VIRTUAL), 4, 1),
        (strategy("Peers", topology="complete", workers=2, **VIRTUAL), 8, 1),
    ],
)
def test_one_seed_is_one_order_whatever_the_strategy(given: Any, batch_size: int, devices: int) -> None:
    alone = trained()
    torch.testing.assert_close(trained(given, batch_size, devices=devices), alone, rtol=0, atol=1e-6)


def test_the_order_is_shuffled_by_the_seed() -> None:
    assert not torch.allclose(trained(shuffle=True), trained(shuffle=False), atol=1e-4)
