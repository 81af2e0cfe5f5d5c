from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from scalebook.training.callbacks.resource_limits import GpuShare
from scalebook.training.lightning import AsyncPS

CUDA = torch.device("cuda", 0)


class OnGpu(AsyncPS):
    root_device = CUDA


def told(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, torch.device]]:
    said: list[tuple[float, torch.device]] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: said.append((part, device)))
    GpuShare(0.5).setup(SimpleNamespace(strategy=strategy), SimpleNamespace(), "fit")  # type: ignore[arg-type]
    return said


def test_workers_on_one_gpu_have_equal_parts_of_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(SimpleNamespace(root_device=CUDA), monkeypatch) == [(0.5, CUDA)]
    assert told(OnGpu(workers=4), monkeypatch) == [(0.125, CUDA)]
    assert told(Trainer(accelerator="cpu", devices=1, logger=False).strategy, monkeypatch) == []
