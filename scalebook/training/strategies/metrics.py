"""A model's torchmetrics in training: computed over what all workers have seen."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.metric import jit_distributed_available

from scalebook.training.ps.memory.uncopied import Uncopied
from scalebook.training.strategies.collectives import Collectives
from scalebook.training.strategies.lightning import LightningModule


def share_metrics(module: LightningModule, meeting: Callable[[], Collectives | None]) -> None:
    """Compute the model's torchmetrics over all workers' values, wherever `meeting()` gives a meeting to exchange them
    in.

    A metric with a `dist_sync_fn` of the user's own stays as it is.
    """
    for metric in module.modules():
        if isinstance(metric, Metric) and metric.dist_sync_fn is None:
            metric.dist_sync_fn = _Gather(meeting)
            metric.distributed_available_fn = _Anybody(meeting)


class _Gather(Uncopied):
    """A metric's `dist_sync_fn`; a copy of the metric has none of its own."""

    def __init__(self, meeting: Callable[[], Collectives | None]) -> None:
        self._meeting = meeting

    def __call__(self, state: Tensor, group: Any = None) -> list[Tensor]:
        collectives = self._meeting()
        assert collectives is not None  # torchmetrics asks first whether there is anybody
        return collectives.gather(state)


class _Anybody:
    """A metric's `distributed_available_fn`; a copy of the metric has torchmetrics' own."""

    def __init__(self, meeting: Callable[[], Collectives | None]) -> None:
        self._meeting = meeting

    def __call__(self) -> bool:
        return self._meeting() is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _usual, ()


def _usual() -> Callable[[], bool]:
    return jit_distributed_available
