"""What Lightning asks a strategy about its workers (ranks, devices, collectives), for workers that do not wait for each
other."""

from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.lightning.async_ps.collectives import Collectives, operation_name
from scalebook.training.lightning.async_ps.session import Session
from scalebook.training.lightning.package import ParallelStrategy, SingleDeviceStrategy, Trainer

T = TypeVar("T")
LIGHTNINGS_BARRIERS: Final = {
    "Trainer.save_checkpoint", "download_model_from_registry", "pre_setup", "post_setup", "run-stage",
    "_CheckpointConnector.resume_end", "train_dataloader()", "val_dataloader()", "sanity_check_dataloader()",
    "test_dataloader()", "predict_dataloader()",
}  # fmt: skip
"""Lightning's own barriers: not all workers reach each, and at most of them none has to wait (`MEETINGS`)."""


class IndependentWorkers(ParallelStrategy):
    """Ranks, devices, and collectives.

    Collectives in the hooks of training wait for the other workers. Elsewhere a worker is a world of one, and they
    return their input, `all_gather` with a first dimension of 1: only worker 0 validates (on all of the validation
    data), decides to stop and writes checkpoints (`CollectiveOrder` says where a worker is alone). torch's default
    process group is never initialised: with it Lightning would keep all workers in step with worker 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self._nodes = 1
        self._said_world_size: int | None = None

    @property
    def session(self) -> Session:
        """The session of this process."""
        raise NotImplementedError

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a checkpoint; plain values alone by default, since Lightning would run code in a checkpoint from a
        URL."""
        return super().load_checkpoint(checkpoint_path, weights_only=True if weights_only is None else weights_only)

    @property
    def num_processes(self) -> int:
        """The number of workers; one for each device, unless a subclass overrides it."""
        return len(self.parallel_devices or [])

    @property
    def num_nodes(self) -> int:
        """The number of nodes; each has the same number of workers."""
        return self._nodes

    @num_nodes.setter
    def num_nodes(self, number: int) -> None:
        self._nodes = number

    @property
    @override
    def global_rank(self) -> int:
        return self.session.rank

    @property
    @override
    def local_rank(self) -> int:
        """The rank on this node; proxies of other nodes' workers come last."""
        return self.session.rank

    @property
    @override
    def node_rank(self) -> int:
        return self.session.node

    @property
    @override
    def world_size(self) -> int:
        """The number of workers; if code has set another number, that is returned and has no other effect."""
        return self._said_world_size or self.num_processes

    @world_size.setter
    def world_size(self, number: int) -> None:
        self._said_world_size = number

    @property
    @override
    def root_device(self) -> torch.device:
        """The worker's device; workers beyond the number of devices share them in turn."""
        assert self.parallel_devices
        return self.parallel_devices[self.local_rank % len(self.parallel_devices)]

    @property
    def _trainer(self) -> Trainer:
        assert self.lightning_module is not None
        return self.lightning_module.trainer

    @override
    def model_to_device(self) -> None:
        assert self.model is not None
        self.model.to(self.root_device)

    # --- collectives ---------------------------------------------------------------------------------------------

    @property
    def is_distributed(self) -> bool:
        """In a hook, for Lightning's `log`: whether `sync_dist` has other workers to reduce over. Outside hooks False,
        so that Lightning puts no sampler of its own into a loader."""
        collectives = self.session.collectives
        return collectives is not None and collectives.places.logs

    def _meeting(self, is_metric: bool = False) -> Collectives | None:
        """The collectives of here and now; None where this worker's own answer is the whole one."""
        collectives = self.session.collectives
        return None if collectives is None or collectives.places.is_alone(is_metric) else collectives

    @override
    def barrier(self, name: str | None = None) -> None:
        if name not in LIGHTNINGS_BARRIERS and (meeting := self._meeting()) is not None:
            meeting.barrier(name)

    @override
    def broadcast(self, obj: T, src: int = 0) -> T:
        meeting = self._meeting()
        received: T = obj if meeting is None else meeting.broadcast(obj, src)
        return received

    @override
    def reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any | None = "mean") -> Any:
        meeting = self._meeting(is_metric=True)
        if meeting is None or not isinstance(tensor, Tensor):
            return tensor
        return meeting.reduce(tensor, operation_name(reduce_op))

    @override
    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """All tensors as [workers, *tensor.shape]; as in Lightning, without the first dimension if the run has one
        worker."""
        if self.num_processes == 1:
            return tensor
        meeting = self._meeting()
        return tensor.unsqueeze(0) if meeting is None else meeting.all_gather(tensor, sync_grads)

    @override
    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        meeting = self._meeting()
        return decision if meeting is None else meeting.decide(decision, all)


SingleDeviceStrategy.register(IndependentWorkers)  # a worker has one: Lightning asks before it trains a compiled model
