"""Splits that keep together what belongs together."""

import math

import numpy as np
import torch


def held_out(group: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which samples validate, bool [samples]: about `fraction` of the groups, at least one and not all of them.

    group: int64 [samples], counted from 0. The same arguments give the same split in every version: numpy guarantees
    RandomState's stream.
    """
    groups = int(group.max()) + 1
    count = min(max(1, round(fraction * groups)), groups - 1)
    return np.isin(group, np.random.RandomState(seed).permutation(groups)[:count])


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
