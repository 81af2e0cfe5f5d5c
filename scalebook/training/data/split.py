"""A stratified split into training and validation samples."""

import math

import numpy as np
import torch


def stratified_split(labels: torch.Tensor, val_fraction: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of the training and of the validation samples, each in ascending order.

    `ceil(val_fraction * n)` samples validate, shared among the classes in proportion (largest remainders first). The
    same arguments give the same split in every version: numpy guarantees RandomState's stream.
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    exact = counts * math.ceil(val_fraction * len(labels)) / len(labels)
    quota = np.floor(exact).astype(int)
    missing = math.ceil(val_fraction * len(labels)) - quota.sum()
    quota[np.argsort(quota - exact, kind="stable")[:missing]] += 1
    draw = np.random.RandomState(seed)
    chosen = np.zeros(len(labels), dtype=bool)
    for label, wanted in zip(classes, quota, strict=True):
        chosen[draw.permutation(np.flatnonzero(labels.numpy() == label))[:wanted]] = True
    return torch.from_numpy(np.flatnonzero(~chosen)), torch.from_numpy(np.flatnonzero(chosen))
