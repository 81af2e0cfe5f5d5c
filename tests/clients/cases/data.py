"""Tiny data, the same in every way and process."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.clients.case import Setting
from tests.clients.fitting import parts

BATCH = 8
BATCHES = 31
"""Of training: odd, as those of most data sets are."""


def clusters(samples: int, classes: int = 4, features: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around the corners of a simplex, and whose they are."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    return 2.0 * torch.eye(classes, features)[labels] + 0.3 * torch.randn(samples, features, generator=draws), labels


def loader(*tensors: Tensor, shuffle: bool = False, batch: int = BATCH) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*tensors), batch_size=batch, shuffle=shuffle)


def in_order(setting: Setting, *tensors: Tensor) -> DataLoader[tuple[Tensor, ...]]:
    """Not shuffled: the workers' batches of an update are together one process's batch of 16."""
    return loader(*tensors, batch=2 * BATCH // parts(setting))


def training(classes: int = 4, features: int = 8, batches: int = BATCHES) -> DataLoader[tuple[Tensor, ...]]:
    return loader(*clusters(BATCH * batches, classes, features), shuffle=True)


def held_out(classes: int = 4, features: int = 8) -> DataLoader[tuple[Tensor, ...]]:
    return loader(*clusters(64, classes, features, seed=1))
