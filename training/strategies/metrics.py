"""A model's torchmetrics in training: computed over what all workers have seen."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor
from torchmetrics import Metric

from training.strategies.collectives import Collectives


def share_metrics(module: LightningModule, meeting: Callable[[], Collectives | None]) -> None:
    """Let `compute` ask the other workers wherever `meeting()` says there are some. A metric that the user has given a
    `dist_sync_fn` of its own stays as it is.
    """

    def gather(state: Tensor, group: Any = None) -> list[Tensor]:
        collectives = meeting()
        assert collectives is not None  # torchmetrics asks first whether there is anybody
        return collectives.gather(state)

    for metric in module.modules():
        if isinstance(metric, Metric) and metric.dist_sync_fn is None:
            metric.dist_sync_fn = gather
            metric.distributed_available_fn = lambda: meeting() is not None
