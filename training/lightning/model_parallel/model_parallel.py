"""Lightning's model parallelism, with workers that are forked: tensor parallelism and FSDP2, on CPUs too."""

import zlib
from collections.abc import Mapping
from typing import Any, Final

import torch
import torch.distributed as dist
from jsonargparse.typing import PositiveInt
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from torchmetrics import Metric
from typing_extensions import override

from scalebook.training.engine.rules.bounds import PositiveFloat
from scalebook.training.experiments.split_degrees import refuse_degrees
from scalebook.training.lightning.model_parallel.parts import (
    clip_by_norm,
    clip_by_value,
    load_optimizer,
    weights_in_parts,
    whole,
)
from scalebook.training.lightning.model_parallel.random_parts import draw_parts_apart
from scalebook.training.lightning.model_parallel.splitting import DATA, TENSOR, begin_alike, refuse_optimizers, split
from scalebook.training.lightning.package import (
    Callback,
    ModelParallelStrategy,
    ModelPruning,
    StochasticWeightAveraging,
    Trainer,
    TrainerFn,
    TrainerState,
    TrainerStatus,
    WeightAveraging,
    _auto_add_worker_init_fn,
    _materialize_distributed_module,
)
from scalebook.training.lightning.process_group.forked_group import DEADLINE_S, ForkedGroup
from scalebook.training.lightning.processes.strategy_launcher import Processes

UNLIKE: Final = (
    "data: the workers of one tensor group read different batches, or have drawn different random numbers, at batch {} "
    "of the epoch. They compute one batch together. Draw order and augmentation from a seed that is the same in all "
    "workers (seed_everything without a rank), and draw nothing in worker 0 alone."
)


class ModelParallel(ForkedGroup, ModelParallelStrategy):
    """For a model too large for one worker, or with very wide layers: each worker has a part of the parameters.

    `trainer.devices` are the workers: tensor x shard. The numbers are those of one process, up to rounding. A model
    says how it splits by `parallel_plan()` and `shard_units()`, or splits itself in `configure_model` by
    `self.device_mesh`, as Lightning's ModelParallelStrategy has it. Checkpoints are whole.

    Args:
        tensor: Workers that compute one batch together, each a part of every layer in the model's `parallel_plan()`
            (tensor parallelism, Shoeybi et al. 2019). 1: layers are not divided.
        shard: Workers that compute a batch each, and hold a part of the parameters each, which they gather layer by
            layer (FSDP2; Rajbhandari et al. 2020). null: all that `tensor` leaves of trainer.devices.
        deadline_s: How long the nodes of a run wait for each other before it starts, s.
    """

    def __init__(
        self, tensor: PositiveInt = 1, shard: PositiveInt | None = None, deadline_s: PositiveFloat = DEADLINE_S
    ) -> None:
        super().__init__(deadline_s=deadline_s, save_distributed_checkpoint=False)
        self.tensor, self.shard = int(tensor), shard
        self._state: TrainerState | None = None  # of the Trainer, in a worker that fits
        self._whole: Mapping[str, Tensor] = {}  # weights after a fit, in the first worker of a machine

    # --- who is there --------------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        workers = self.num_nodes * self.num_processes
        refuse_degrees(self.tensor, self.shard, workers)
        self._data_parallel_size, self._tensor_parallel_size = workers // self.tensor, self.tensor
        super()._configure_launcher()

    @property
    @override
    def data_size(self) -> int:
        return self.world_size // self.tensor

    @property
    @override
    def data_rank(self) -> int:
        return self.global_rank // self.tensor

    @property
    @override
    def data_group(self) -> Any:
        """None where no workers have met: in the process that called fit."""
        return None if self._device_mesh is None else self._device_mesh[DATA].get_group()

    @override
    def _setup_distributed(self) -> None:
        if not self.meet():
            super()._setup_distributed()

    @override
    def setup_environment(self) -> None:
        super().setup_environment()
        draw_parts_apart(self.root_device.type)
        if self.data_size == 1:  # the batches of one process, in its order
            assert self.lightning_module is not None
            self.lightning_module.trainer._accelerator_connector.use_distributed_sampler = False

    @override
    def setup(self, trainer: Trainer) -> None:
        module = self.lightning_module
        assert module is not None
        assert self.model is not None
        if self._layer_sync is not None:
            raise ValueError(
                "trainer.sync_batchnorm: ModelParallel does not share statistics within a forward pass. Write false, "
                "or use ddp."
            )
        empty = any(parameter.is_meta for parameter in module.parameters())
        split(module, self.device_mesh)
        _materialize_distributed_module(self.model, self.root_device)
        if empty:
            begin_alike(module, self.root_device.type)
        super(ModelParallelStrategy, self).setup(trainer)  # whose own demands configure_model
        refuse_optimizers(self.optimizers)
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = lambda optimizer, largest: clip_by_norm(plugin.main_params(optimizer), largest)
        plugin.clip_grad_by_value = lambda optimizer, largest: clip_by_value(plugin.main_params(optimizer), largest)
        for metric in module.modules():
            if isinstance(metric, Metric) and metric.process_group is None:
                metric.process_group = self.data_group
        loops: Any = (
            trainer.fit_loop.epoch_loop.val_loop,
            trainer.validate_loop,
            trainer.test_loop,
            trainer.predict_loop,
        )
        for loop in loops:
            loop.inference_mode = False  # parameters that are gathered in it could not be trained
        self.share_evaluation(trainer)
        self._state = trainer.state if trainer.state.fn == TrainerFn.FITTING else None

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        for callback in callbacks:
            if isinstance(callback, ModelPruning | StochasticWeightAveraging | WeightAveraging):
                raise ValueError(
                    f"trainer.callbacks: {type(callback).__name__} reads and writes whole parameters, and workers have "
                    "parts. Remove it, or use strategy ddp."
                )
        return super().before_fork(trainer)

    # --- data ----------------------------------------------------------------------------------------------------

    @property
    @override
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """To predict, all workers take all batches: they gather parameters together, as often as each other."""
        assert self.lightning_module is not None
        if self.lightning_module.trainer.predicting or self._evaluates():
            return {"num_replicas": 1, "rank": 0}
        return {"num_replicas": self.data_size, "rank": self.data_rank}

    @override
    def process_dataloader(self, dataloader: object) -> object:
        _auto_add_worker_init_fn(dataloader, self.data_rank)  # before Lightning does, by the rank
        return super().process_dataloader(dataloader)

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Compare what the workers of a tensor group compute, at batches 0, 1, 2, 4, 8 ... of an epoch."""
        if self.tensor > 1 and batch_idx & (batch_idx - 1) == 0:
            own = torch.tensor([_fingerprint(batch)], device=self.root_device)
            everyone = [torch.empty_like(own) for _ in range(self.tensor)]
            dist.all_gather(everyone, own, self.device_mesh[TENSOR].get_group())
            if any(int(one) != int(own) for one in everyone):
                raise ValueError(UNLIKE.format(batch_idx))

    @override
    def on_validation_start(self) -> None:
        self._buffers_of_worker_0()

    @override
    def on_test_start(self) -> None:
        self._buffers_of_worker_0()

    def _buffers_of_worker_0(self) -> None:
        """Running statistics are worker 0's, as under DDP."""
        if self.data_size > 1:
            assert self.lightning_module is not None
            for buffer in self.lightning_module.buffers():
                dist.broadcast(buffer, self.tensor_rank, self.data_group)

    @property
    def tensor_rank(self) -> int:
        """This worker's number in its tensor group."""
        return self.global_rank % self.tensor

    # --- collectives ---------------------------------------------------------------------------------------------

    @override
    def reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        """Reduce over the workers that have a batch each: those of a tensor group have the same values."""
        return super().reduce(tensor, self.data_group if group is None else group, reduce_op)

    @override
    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        votes = int(self.reduce(torch.tensor(int(decision), device=self.root_device), dist.group.WORLD, "sum"))
        return votes == self.world_size if all else votes > 0

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @property
    @override
    def lightning_restore_optimizer(self) -> bool:
        return True

    @property
    @override
    def restore_checkpoint_after_setup(self) -> bool:
        """Whole weights are loaded before they are split, as in one process, if there are any."""
        assert self.lightning_module is not None
        return any(parameter.is_meta for parameter in self.lightning_module.parameters())

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        """Save a whole checkpoint, as one process does, in worker 0."""
        super(ModelParallelStrategy, self).save_checkpoint(checkpoint, filepath, storage_options)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a whole checkpoint, in every worker; plain values alone by default, since Lightning would run code in a
        checkpoint from a URL."""
        weights_only = True if weights_only is None else weights_only
        return super(ModelParallelStrategy, self).load_checkpoint(checkpoint_path, weights_only)

    @override
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        own = self.lightning_module.state_dict()
        self.lightning_module.load_state_dict(weights_in_parts(checkpoint["state_dict"], own), strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=False):
            load_optimizer(optimizer, saved)

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Whole weights in worker 0; all workers must call it."""
        assert self.lightning_module is not None
        state: dict[str, Any] = whole(self.lightning_module.state_dict(), self.is_global_zero)
        return state

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Whole state in worker 0; all workers must call it."""
        state: dict[str, Any] = whole(
            super(ModelParallelStrategy, self).optimizer_state(optimizer), self.is_global_zero
        )
        return state

    @override
    def teardown(self) -> None:
        if self._state is not None and self._state.status is not TrainerStatus.INTERRUPTED:
            assert self.lightning_module is not None
            self._whole = whole(self.lightning_module.state_dict(), self.local_rank == 0)
        super().teardown()

    @override
    def weights(self, trainer: Trainer) -> Mapping[str, Tensor]:
        return self._whole


def _fingerprint(batch: Any) -> int:
    """Of a batch's tensors, and of the state of torch's random numbers."""
    checked = zlib.crc32(torch.get_rng_state().numpy().data)
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            checked = zlib.crc32(flat.view(torch.uint8).numpy().data, checked)
    return checked
