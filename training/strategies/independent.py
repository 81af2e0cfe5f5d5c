"""What Lightning asks a strategy about its workers, answered for workers that do not wait for each other."""

from typing import Any, TypeVar

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor
from typing_extensions import override

T = TypeVar("T")


class IndependentWorkers(ParallelStrategy):
    """Ranks, devices, and collectives that answer from the worker alone.

    `reduce`, `broadcast`, `all_gather` and `reduce_boolean_decision` return what they are given. That is right because
    only worker 0 validates (on all of the validation data), logs, decides to stop and writes checkpoints, and what
    Lightning broadcasts (a checkpoint's folder, whether a file exists) matters to worker 0 alone. torch's default
    process group is never initialised: Lightning would keep all workers in step with worker 0. Nor is the strategy
    `is_distributed`, for which Lightning would put samplers of its own into the loaders.
    """

    def __init__(self) -> None:
        super().__init__()
        self._worker = 0

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Plain values alone, unless told otherwise: Lightning would run what a checkpoint from an address holds."""
        return super().load_checkpoint(checkpoint_path, weights_only=True if weights_only is None else weights_only)

    @property
    def num_processes(self) -> int:
        """Workers; one for each device, unless a subclass knows better."""
        return len(self.parallel_devices or [])

    @property
    def num_nodes(self) -> int:
        return 1

    @num_nodes.setter
    def num_nodes(self, number: int) -> None:
        if number != 1:
            raise ValueError(f"trainer.num_nodes: AsyncPS runs on one machine, not on {number}. Set it to 1.")

    @property
    @override
    def global_rank(self) -> int:
        return self._worker

    @property
    @override
    def local_rank(self) -> int:
        return self._worker

    @property
    @override
    def node_rank(self) -> int:
        return 0

    @property
    @override
    def world_size(self) -> int:
        return self.num_processes

    @property
    @override
    def root_device(self) -> torch.device:
        """The worker's device; workers beyond the number of devices share them in turn."""
        assert self.parallel_devices
        return self.parallel_devices[self._worker % len(self.parallel_devices)]

    @property
    def _trainer(self) -> Trainer:
        assert self.lightning_module is not None
        return self.lightning_module.trainer

    @override
    def model_to_device(self) -> None:
        assert self.model is not None
        self.model.to(self.root_device)

    @override
    def barrier(self, name: str | None = None) -> None:
        """Nobody waits."""

    @override
    def broadcast(self, obj: T, src: int = 0) -> T:
        return obj

    @override
    def reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any | None = "mean") -> Any:
        return tensor

    @override
    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        return tensor

    @override
    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return decision
