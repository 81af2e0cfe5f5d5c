"""The size of any batch, and the loss in what a training step returns."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def batch_size(batch: Any) -> int:
    """The samples in a batch: the length of its first tensor; 1 if it has none."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    for part in parts:
        if isinstance(part, Tensor | Mapping | list | tuple):
            return batch_size(part)
    return 1


def loss_of(outputs: Any) -> Tensor | None:
    """The loss that a training step returned, as Lightning passes it on (divided by the accumulated batches)."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 else None
