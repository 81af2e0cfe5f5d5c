"""Small versions of models that people have."""

from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, TensorDataset


class Discs(lightning.LightningDataModule):
    """Noisy images of discs, and their masks.

    Args:
        batch_size: Images in a batch of one worker.
    """

    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    def _loader(self, count: int, seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
        chance = torch.Generator().manual_seed(seed)
        centre, radius = torch.rand(count, 2, generator=chance) * 16, 2 + 4 * torch.rand(count, generator=chance)
        grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
        away = (grid[None] - centre[:, :, None, None]).square().sum(1).sqrt()
        masks = (away < radius[:, None, None]).float()[:, None]
        images = masks + 0.7 * torch.randn(masks.shape, generator=chance)
        return DataLoader(TensorDataset(images, masks), self.batch_size, shuffle=seed == 1)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return self._loader(256, 1)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return self._loader(64, 2)


class UNet(lightning.LightningModule):
    """A U-Net with AdamW and OneCycleLR over the whole training.

    Args:
        learning_rate: The largest one of the cycle.
    """

    def __init__(self, learning_rate: float = 5e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.down = nn.Conv2d(1, 8, 3, padding=1)
        self.low = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = torch.relu(self.down(x))
        low = torch.relu(self.low(nn.functional.max_pool2d(high, 2)))
        result: torch.Tensor = self.up(torch.cat([high, nn.functional.interpolate(low, scale_factor=2)], 1))
        return result

    def _loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(self(batch[0]), batch[1])

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        rate = self.hparams["learning_rate"]
        optimizer = torch.optim.AdamW(self.parameters(), lr=rate)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def collate(pairs: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Texts of different lengths, padded."""
    texts, labels = zip(*pairs, strict=True)
    return (
        pad_sequence(list(texts), batch_first=True),
        torch.tensor([len(text) for text in texts]),
        torch.tensor(labels),
    )


class Texts(lightning.LightningDataModule):
    """Texts of 3 to 12 letters, and whether they have more of the first half of the alphabet.

    Args:
        batch_size: Texts in a batch of one worker.
    """

    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    def _loader(self, count: int, seed: int) -> DataLoader[Any]:
        chance = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 13, (count,), generator=chance).tolist()
        texts = [torch.randint(0, 26, (length,), generator=chance) for length in lengths]
        pairs: Any = [(text, int((text < 13).float().mean() > 0.5)) for text in texts]
        return DataLoader(pairs, self.batch_size, shuffle=seed == 1, collate_fn=collate)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(512, 1)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(128, 2)


class TextNet(lightning.LightningModule):
    """A GRU.

    Args:
        lr: Learning rate of Adam.
    """

    def __init__(self, lr: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.letters, self.gru = nn.Embedding(26, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def _logits(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        packed = pack_padded_sequence(self.letters(batch[0]), batch[1], batch_first=True, enforce_sorted=False)
        logits: torch.Tensor = self.head(self.gru(packed)[1][0])
        return logits

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self._logits(batch), batch[2])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        logits = self._logits(batch)
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[2]), batch_size=len(logits))
        self.log("val_acc", (logits.argmax(1) == batch[2]).float().mean(), batch_size=len(logits))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.hparams["lr"])


class Curve(lightning.LightningDataModule):
    """A smooth function of eight numbers, with noise.

    Args:
        batch_size: Points in a batch of one worker.
    """

    def __init__(self, batch_size: int = 16) -> None:
        super().__init__()
        self.batch_size = batch_size

    def _loader(self, count: int, seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
        x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
        data = TensorDataset(x, torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3])
        return DataLoader(data, self.batch_size, shuffle=seed == 1)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return self._loader(1024, 1)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return self._loader(256, 2)


class Regressor(lightning.LightningModule):
    """Two groups of parameters, and a rate that falls when `val_rmse` does not.

    Args:
        lr: Learning rate of the body; the head learns at a tenth of it.
    """

    def __init__(self, lr: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.Tanh()), nn.Linear(32, 1)

    def _error(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.mse_loss(self.head(self.body(batch[0])), batch[1])

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = self._error(batch)
        self.log("train_mse", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("val_rmse", self._error(batch).sqrt())

    def configure_optimizers(self) -> OptimizerLRScheduler:
        rate = self.hparams["lr"]
        groups = [{"params": self.body.parameters()}, {"params": self.head.parameters(), "lr": rate / 10}]
        optimizer = torch.optim.Adam(groups, lr=rate)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_rmse"}}


class Hidden(lightning.LightningModule):
    """A classifier whose learning rate no argument sets, and which is judged by its accuracy."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), (batch[1][:, 0] > 0).long())

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        right = self.net(batch[0]).argmax(1) == (batch[1][:, 0] > 0)
        self.log("val_accuracy", right.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 3e-3)
