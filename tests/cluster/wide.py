"""What a drill between machines trains: more than one frame of Ethernet holds, dense or with sparse tables."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from typing_extensions import override

from tests.training.engine.trained import SHARED_ROW, Model, Tables, Trained

WIDE = 2000
"""Of float64: 16 kB for each worker."""


class Wide(Trained):
    """Dense, with a wide parameter."""

    @override
    def parameters(self, model: nn.Module | None = None) -> list[Parameter]:
        return [*super().parameters(model), Parameter(torch.zeros(self.workers, WIDE, dtype=torch.float64))]

    @override
    def put(self, parameters: Sequence[Parameter], worker: int) -> None:
        for parameter, gradient in zip(parameters, self.pushed(worker, 0), strict=True):
            parameter.grad = gradient

    @override
    def pushed(self, worker: int, seq: int) -> list[Tensor]:
        wide = torch.zeros(self.workers, WIDE, dtype=torch.float64)
        wide[worker] = 1.0
        return [*super().pushed(worker, seq), wide]


class WideModel(Model):
    """Tables, and a wide parameter beside them."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.wide = Parameter(torch.zeros(workers, WIDE, dtype=torch.float64))


class WideTables(Tables):
    """Sparse tables, of which a worker fetches the rows that it is about to push."""

    @override
    def model(self) -> WideModel:
        return WideModel(self.workers)


def fetch(model: nn.Module | None, worker: int) -> None:
    """As a forward does."""
    if isinstance(model, WideModel):
        rows = torch.tensor([[SHARED_ROW, 10 + worker]])
        assert all(table(rows).isfinite().all() for table in (model.words, model.bags))
