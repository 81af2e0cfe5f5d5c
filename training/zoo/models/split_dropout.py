"""Dropout within a pair of layers that is split over workers."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle
from torch.nn import Dropout, Module
from typing_extensions import override


class SplitDropout(ParallelStyle):
    """A style for `parallel_plan()`: between a `ColwiseParallel` and a `RowwiseParallel` layer, each worker draws one
    process's mask and applies its part. Without it all workers would draw the same mask, for different units.

    Args:
        width: Units of the layer before, of all workers.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    @override
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        assert isinstance(module, Dropout)
        rank, workers = device_mesh.get_local_rank(), device_mesh.size()

        def forward(units: Tensor) -> Tensor:
            """Units [..., this worker's part of the width]."""
            if not module.training or module.p == 0:
                return units
            mask = F.dropout(
                torch.ones(*units.shape[:-1], self.width, dtype=units.dtype, device=units.device), module.p
            )
            parts = mask.chunk(workers, -1)
            return units * parts[rank]

        module.forward = forward  # type: ignore[method-assign, assignment]  # as torch's styles do
        return module
