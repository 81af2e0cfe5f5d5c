from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer

from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.processes import cuda_fork
from scalebook.training.zoo.data.digits import Digits
from scalebook.training.zoo.data.messages import Messages


@pytest.fixture(params=["cpu", "gpu"])
def trainer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """On a machine with one GPU, counted by NVML."""
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(cuda_fork, "_has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", None)  # in a CUDA build, of the machine's none
    monkeypatch.setattr("lightning.pytorch.trainer.setup._log_device_info", lambda trainer: None)
    return Trainer(strategy=AsyncPS(workers=2), accelerator=request.param, devices=1, logger=False)


@pytest.mark.parametrize("make", [Digits, Messages])
def test_loaders_pin_where_a_gpu_trains(make: Any, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    module: LightningDataModule = make()
    module.prepare_data()
    module.trainer = trainer
    module.setup("fit")
    is_gpu = trainer.strategy.root_device.type == "cuda"
    assert [loader.pin_memory for loader in (module.train_dataloader(), module.val_dataloader())] == [is_gpu] * 2


def test_images_from_memory_are_pinned_batch_by_batch(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Size] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.shape)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    module = Digits(batch_size=8, limit=20)
    module.trainer = trainer
    module.setup("fit")
    labels = [len(labels) for _, labels in module.train_dataloader()]
    assert labels == [8, 8, 4]
    shapes = [torch.Size(shape) for count in labels for shape in ((count, 1, 8, 8), (count,))]
    assert pinned == (shapes if trainer.strategy.root_device.type == "cuda" else [])


def test_without_a_trainer_nothing_is_pinned() -> None:
    module = Digits()
    module.setup("fit")
    assert not module.train_dataloader().pin_memory
