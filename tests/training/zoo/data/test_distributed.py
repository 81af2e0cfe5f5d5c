"""The workers' shares of the data, with Lightning's own replacement of the sampler, in real processes."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from typing_extensions import override

from scalebook.training.zoo.data import Digits
from scalebook.training.zoo.data.module import Batch


class Recorder(LightningModule):
    """Writes each worker's images, one tensor an epoch, to a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[torch.Tensor] = []

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self.seen.append(batch[0])
        return self.weight.sum()

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass

    @override
    def on_train_epoch_end(self) -> None:
        torch.save(torch.cat(self.seen), self.folder / f"{self.current_epoch}-{self.global_rank}.pt")
        self.seen.clear()

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def fit(folder: Path, strategy: str, devices: int, batch_size: int, epochs: int = 2) -> None:
    folder.mkdir()
    trainer = Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=devices,
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Recorder(folder), datamodule=Digits(batch_size=batch_size))


def epoch(folder: Path, number: int, worker: int) -> torch.Tensor:
    """Images seen, [images, 64]."""
    seen: torch.Tensor = torch.load(folder / f"{number}-{worker}.pt")
    return seen.flatten(1)


def test_two_workers_have_disjoint_shares_that_make_up_the_batches_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    fit(tmp_path / "one", "auto", 1, batch_size=64)
    fit(tmp_path / "two", "ddp_fork", 2, batch_size=32)
    for number in (0, 1):
        whole = epoch(tmp_path / "one", number, 0)
        shares = torch.stack([epoch(tmp_path / "two", number, worker) for worker in (0, 1)], dim=1)
        assert (len(whole), shares.shape) == (1437, (719, 2, 64))
        together = shares.flatten(0, 1)  # worker 0 has the even places of the one order, worker 1 the odd ones
        assert torch.equal(together[:1437], whole)
        assert torch.equal(together[1437], whole[0])  # the one that pads the last batch
    assert not torch.equal(epoch(tmp_path / "one", 0, 0), epoch(tmp_path / "one", 1, 0))


def test_predicting_gives_every_validation_image_once(tmp_path: Path) -> None:
    class Sum(Recorder):
        @override
        def predict_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
            return batch[0].sum((1, 2, 3))

    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    data = Digits()
    sums = trainer.predict(Sum(tmp_path), datamodule=data)
    expected = torch.cat([images.sum((1, 2, 3)) for images, _ in data.val_dataloader()])
    assert sums is not None
    assert torch.equal(torch.cat([part for part in sums if isinstance(part, torch.Tensor)]), expected)
