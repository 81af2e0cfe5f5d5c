"""Lightning's model parallelism, with workers that are forked: tensor parallelism and FSDP2, on CPUs too."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from typing_extensions import override

from scalebook.training.engine.rules import ArgumentError, PositiveFloat, PositiveInt
from scalebook.training.experiments import microbatches_of, pipeline_order, refuse_degrees
from scalebook.training.lightning.model_parallel.part_measures import EpochMeasures
from scalebook.training.lightning.model_parallel.parts import (
    clip_by_norm,
    clip_by_value,
    load_optimizer,
    weights_in_parts,
    whole,
)
from scalebook.training.lightning.model_parallel.pipeline import Groups, Pipeline
from scalebook.training.lightning.model_parallel.splitting import (
    DATA,
    TENSOR,
    attributes_of,
    begin_alike,
    draw_parts_apart,
    give_attributes,
    refuse_optimizers,
    refuse_sparse,
    split,
)
from scalebook.training.lightning.model_parallel.stages import keep_own_state, own_state
from scalebook.training.lightning.package import (
    Callback,
    LightningModule,
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
from scalebook.training.lightning.process_group.neighbours import gather_values
from scalebook.training.lightning.processes.strategy_launcher import Processes
from scalebook.training.lightning.random_streams import digests
from scalebook.training.lightning.tied_weights import refuse_shared_memory
from scalebook.training.pricing import Split, part_record

UNLIKE: Final = (
    "data: the workers of one {} compute each batch together, but at batch {} of the epoch they read different "
    "batches or drew different random numbers. Use the same seed for order and augmentation in all workers "
    "(seed_everything without a rank), and do not draw random numbers in only one worker."
)
APART: Final = (
    "optimizer: the settings of {}, such as a step size that it adapts, now differ between workers. This optimizer "
    "computes over all parameters together, but each worker has only a part of the parameters. Use another optimizer, "
    "such as torch.optim.SGD or torch.optim.Adam, or strategy ddp."
)


class ModelParallel(ForkedGroup, ModelParallelStrategy):
    """For a model too large for one worker, or with very wide layers: each worker has a part of the parameters.

    `trainer.devices` is the number of workers: tensor x shard, or stages x data. Results equal those of one process, up
    to rounding. A model defines how to split it by `parallel_plan()`, `shard_units()` and `stages()`, or splits itself
    in `configure_model` by `self.device_mesh`, as with Lightning's ModelParallelStrategy. Checkpoints contain the whole
    model.

    Args:
        tensor: Number of workers that compute one batch together, each a part of every layer in the model's
            `parallel_plan()` (tensor parallelism, Shoeybi et al. 2019). 1: layers are not divided.
        shard: Number of workers that each compute a batch and hold a part of the parameters. They gather the parameters
            layer by layer (FSDP2; Rajbhandari et al. 2020). Null: trainer.devices / tensor.
        stages: Number of workers that compute one batch together, each with some consecutive layers of the model
            (pipeline parallelism, Huang et al. 2019). The other workers compute other batches. 1: each worker has all
            layers.
        microbatches: Number of parts into which a batch is divided on its way through the stages. With more parts,
            stages wait less for each other. The loss must be a mean over samples. Null: four for each stage.
        schedule: In which order a stage computes the microbatches. `gpipe`: all forward passes, then all backward
            passes. `1f1b`: each backward pass as soon as possible, which keeps fewer activations (Narayanan et al.
            2021).
        deadline_s: Seconds that the nodes of a run wait for each other before the run starts.
    """

    def __init__(
        self,
        tensor: PositiveInt = 1,
        shard: PositiveInt | None = None,
        stages: PositiveInt = 1,
        microbatches: PositiveInt | None = None,
        schedule: pipeline_order.Schedule = "1f1b",
        deadline_s: PositiveFloat = DEADLINE_S,
    ) -> None:
        super().__init__(deadline_s=deadline_s, save_distributed_checkpoint=False)
        self.tensor, self.shard = int(tensor), shard
        self.stages, self.microbatches, self.schedule = int(stages), microbatches, schedule
        self.together = self.tensor * self.stages
        """Workers that compute one batch."""
        self.pipeline: Pipeline | None = None
        self._attributes: dict[str, dict[str, Any]] = {}  # of parameters, before they are split
        """In a worker of several stages."""
        self._measures: EpochMeasures | None = None
        self._state: TrainerState | None = None  # of the Trainer, in a worker that fits
        self._whole: Mapping[str, Tensor] = {}  # weights after a fit, in the first worker of a machine

    # --- who is there --------------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        workers = self.num_nodes * self.num_processes
        refuse_degrees(self.tensor, self.shard, workers, self.stages, self.microbatches, self.schedule)
        self._data_parallel_size, self._tensor_parallel_size = workers // self.together, self.together
        super()._configure_launcher()

    @property
    @override
    def data_size(self) -> int:
        return self.world_size // self.together

    @property
    @override
    def data_rank(self) -> int:
        return self.global_rank // self.together

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
                "trainer.sync_batchnorm: ModelParallel does not share statistics within a forward pass. Use false, "
                "or use ddp."
            )
        if self.stages > 1:
            self._into_stages(module)
        else:
            empty = any(parameter.is_meta for parameter in module.parameters())
            self._attributes = attributes_of(module)
            split(module, self.device_mesh)
            _materialize_distributed_module(self.model, self.root_device)
            if empty:
                begin_alike(module, self.root_device.type)
        super(ModelParallelStrategy, self).setup(trainer)  # whose own demands configure_model
        plugin: Any = self.precision_plugin
        norm = None if self.pipeline is None else self.pipeline.norm
        plugin.clip_grad_by_norm = lambda optimizer, largest: clip_by_norm(plugin.main_params(optimizer), largest, norm)
        plugin.clip_grad_by_value = lambda optimizer, largest: clip_by_value(plugin.main_params(optimizer), largest)
        for metric in module.modules():
            if isinstance(metric, Metric) and metric.process_group is None and metric.dist_sync_fn is None:
                metric.dist_sync_fn = _GatherInGroup(self.data_group).gather
        loops: Any = (
            trainer.fit_loop.epoch_loop.val_loop,
            trainer.validate_loop,
            trainer.test_loop,
            trainer.predict_loop,
        )
        for loop in loops:
            loop.inference_mode = False  # parameters that are gathered in it could not be trained
        self.share_evaluation(trainer)
        if self.pipeline is not None:
            self._share_at_the_end_of_epochs(trainer, self.pipeline)
        self._state = trainer.state if trainer.state.fn == TrainerFn.FITTING else None
        if self._state is not None and self.world_size > 1:
            self._measures = EpochMeasures(module, self._words, self.pipeline)

    @property
    def _words(self) -> str:
        """The split, as prices call it."""
        tensor, shard = self.tensor, 1 if self.stages > 1 else self.data_size
        microbatches = microbatches_of(self.stages, self.microbatches)
        data = self.data_size if self.stages > 1 else 1
        return Split(tensor, shard, self.stages, data, microbatches, self.schedule).words

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        for callback in callbacks:
            if isinstance(callback, ModelPruning | StochasticWeightAveraging | WeightAveraging):
                raise ValueError(
                    f"trainer.callbacks: {type(callback).__name__} reads and writes whole parameters, but each worker "
                    "has only a part of them. Remove it, or use strategy ddp."
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
        """Begin each batch with worker 0's buffers, as DDP does. Compare what the workers that compute one batch have
        of it, at batches 0, 1, 2, 4, 8 ... of an epoch."""
        self._buffers_of_worker_0()
        if self.together > 1 and batch_idx & (batch_idx - 1) == 0:
            own = torch.tensor([_fingerprint(batch), _settings_print(self.optimizers)], device=self.root_device)
            everyone = [torch.empty_like(own) for _ in range(self.together)]
            dist.all_gather(everyone, own, self.device_mesh[TENSOR].get_group())
            if any(int(one[0]) != int(own[0]) for one in everyone):
                raise ValueError(UNLIKE.format("tensor group" if self.stages == 1 else "pipeline", batch_idx))
            if any(int(one[1]) != int(own[1]) for one in everyone):
                raise ValueError(APART.format(", ".join(type(each).__name__ for each in self.optimizers)))

    @override
    def on_validation_start(self) -> None:
        self._whole_buffers()

    @override
    def on_test_start(self) -> None:
        self._whole_buffers()

    def _whole_buffers(self) -> None:
        self._buffers_of_worker_0()
        if self.pipeline is not None:
            self.pipeline.share_rest()

    def _buffers_of_worker_0(self) -> None:
        """What training keeps in buffers is worker 0's, as under DDP; of a stage, its first worker's."""
        assert self.lightning_module is not None
        if self.data_size > 1:
            for buffer in self.lightning_module.buffers():
                if not buffer.is_meta:
                    dist.broadcast(buffer, self.tensor_rank, self.data_group)

    @property
    def tensor_rank(self) -> int:
        """This worker's number among those that compute one batch."""
        return self.global_rank % self.together

    # --- collectives ---------------------------------------------------------------------------------------------

    @override
    def reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        """Reduce over the workers that have a batch each: those of a tensor group have the same values."""
        return super().reduce(tensor, self.data_group if group is None else group, reduce_op)

    @override
    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        votes = int(self.reduce(torch.tensor(int(decision), device=self.root_device), dist.group.WORLD, "sum"))
        return votes == self.world_size if all else votes > 0

    # --- stages ----------------------------------------------------------------------------------------------------

    def _into_stages(self, module: LightningModule) -> None:
        """Keep this worker's stage, and let `self(...)` be the output of all."""
        if not module.automatic_optimization:
            raise ArgumentError(
                "contradiction",
                "stages",
                f"{type(module).__name__} steps its optimizers itself, which would happen once per microbatch",
                "Let Lightning step the optimizers (automatic_optimization), or remove stages.",
            )
        refuse_sparse(module)
        refuse_shared_memory(module)
        begin_alike(module, self.device_mesh.device_type)
        forward = self.device_mesh[TENSOR].get_group()
        backward = None
        for first in range(0, self.world_size, self.stages):
            ranks = list(range(first, first + self.stages))
            group = dist.new_group(ranks)
            backward = group if self.global_rank in ranks else backward
        groups = Groups(forward, backward, self.data_group, dist.get_process_group_ranks(forward))
        microbatches = microbatches_of(self.stages, self.microbatches)
        self.pipeline = Pipeline(module, groups, microbatches, self.schedule, self.root_device)

    @override
    def model_to_device(self) -> None:
        if self.pipeline is None:
            super().model_to_device()
        else:
            self.pipeline.own.to(self.root_device)

    @override
    def setup_optimizers(self, trainer: Trainer) -> None:
        if self.pipeline is None and self.lightning_module is not None:
            give_attributes(self.lightning_module, self._attributes)
        super().setup_optimizers(trainer)
        if self.pipeline is None:
            refuse_optimizers(self.optimizers)
        for optimizer in self.optimizers if self.pipeline is not None else ():
            keep_own_state(optimizer)

    @override
    def on_train_start(self) -> None:
        super().on_train_start()
        if self.pipeline is not None:
            self.pipeline.own.refuse_batch_statistics()

    @override
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self.lightning_module is not None
        if self._measures is None:
            return self._step(*args, **kwargs)
        self._measures.begin_step(self.lightning_module.trainer)
        try:
            output = self._step(*args, **kwargs)
        except BaseException:
            self._measures.end_step()
            raise
        if output is None:
            self._measures.end_step()
        return output

    @override
    def backward(self, *args: Any, **kwargs: Any) -> Tensor:
        try:
            return super().backward(*args, **kwargs)
        finally:
            if self._measures is not None:
                self._measures.end_step()

    @override
    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        output = super().optimizer_step(*args, **kwargs)
        if self._measures is not None:
            assert self.lightning_module is not None
            self._measures.tell(self.lightning_module.trainer, self.root_device)
        return output

    @property
    def parts(self) -> part_record.PartRecord | None:
        """What each worker holds and sends, as the last step that was measured says; None before."""
        return None if self._measures is None else self._measures.record

    def _step(self, *args: Any, **kwargs: Any) -> Any:
        """The module's training step, over all stages."""
        if self.pipeline is None:
            return super().training_step(*args, **kwargs)
        assert self.lightning_module is not None
        loop = self.lightning_module.trainer.fit_loop.epoch_loop
        context = self.precision_plugin.train_step_context
        return self.pipeline.train(loop.total_batch_idx, loop.batch_idx == 0, context, *args, *kwargs.values())

    def _share_at_the_end_of_epochs(self, trainer: Trainer, pipeline: Pipeline) -> None:
        """What an epoch's hooks and metrics read is the same in all workers of a pipeline."""
        connector: Any = trainer._logger_connector
        reached = connector.epoch_end_reached

        def share() -> None:
            if trainer.training:
                pipeline.share_rest()
            reached()

        connector.epoch_end_reached = share

    def _of_all_stages(self, own: Mapping[Any, Any], brought: Mapping[Any, Any]) -> dict[Any, Any]:
        """`own` with what the workers of each stage bring to it, in worker 0. Others send theirs, and have nothing."""
        assert self.pipeline is not None
        brings = self.pipeline.gathered(brought) if self.data_rank == 0 else None
        merged = {**own} if brings is not None else {}
        for one in brings or ():
            merged |= one
        return merged

    def _for_each_machine(self, state: dict[str, Any]) -> dict[str, Any]:
        """Worker 0's state, in the first worker of each machine too."""
        assert self.pipeline is not None
        for node in range(1, self.num_nodes):
            first = node * self.num_processes
            if self.global_rank in (0, first):
                gathered = gather_values(state, (first, 0), None, self.root_device)
                state = state if gathered is None else gathered[1]
        return state

    @contextmanager
    def whole_model(self) -> Iterator[bool]:
        """Whether this worker can ask the model for something that reads parameters besides a forward pass, and is to,
        in the block. All workers must enter it. Of stages worker 0 has all, for that long."""
        if self.pipeline is None:
            yield True
        elif self.data_rank:
            yield False
        else:
            with self.pipeline.whole() as has_all:
                yield has_all

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
        module, weights = self.lightning_module, checkpoint["state_dict"]
        assert module is not None
        weights = (
            weights_in_parts(weights, module.state_dict())
            if self.pipeline is None
            else self.pipeline.own.loadable(weights)
        )
        module.load_state_dict(weights, strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=False):
            load_optimizer(optimizer, saved if self.pipeline is None else own_state(optimizer, saved))

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Whole weights in worker 0; all workers must call it."""
        assert self.lightning_module is not None
        own = self.lightning_module.state_dict()
        if self.pipeline is not None:
            return self._of_all_stages(own, self.pipeline.own.brings(own, self.pipeline.is_last))
        state: dict[str, Any] = whole(own, self.is_global_zero)
        return state

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Whole state in worker 0; all workers must call it."""
        own: dict[str, Any] = super(ModelParallelStrategy, self).optimizer_state(optimizer)
        if self.pipeline is not None:
            return {**own, "state": self._of_all_stages({}, own["state"])}
        state: dict[str, Any] = whole(own, self.is_global_zero)
        return state

    @override
    def teardown(self) -> None:
        if self._state is not None and self._state.status is not TrainerStatus.INTERRUPTED:
            assert self.lightning_module is not None
            self._whole = (
                whole(self.lightning_module.state_dict(), self.local_rank == 0)
                if self.pipeline is None
                else self._for_each_machine(self.lightning_module_state_dict())
            )
        super().teardown()

    @override
    def weights(self, trainer: Trainer) -> Mapping[str, Tensor]:
        return self._whole


class _GatherInGroup:
    """How a metric gathers its state from the workers that have a batch each. torch cannot copy a process group, and
    a copy of a metric (`clone`, `MetricTracker`) is to gather from the same workers."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __deepcopy__(self, memo: object) -> "_GatherInGroup":
        return self

    def gather(self, tensor: Tensor, group: Any = None) -> list[Tensor]:
        return gather_all_tensors(tensor, self._group if group is None else group)


def _fingerprint(batch: Any) -> int:
    """Of a batch's tensors, and of the states of random numbers."""
    checked = zlib.crc32(repr(digests()).encode())
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            checked = zlib.crc32(flat.view(torch.uint8).numpy().data, checked)
    return checked


def _settings_print(optimizers: Sequence[Optimizer]) -> int:
    """Of the numbers in an optimizer's groups."""
    groups = [dict(group, params=None) for optimizer in optimizers for group in optimizer.param_groups]
    return zlib.crc32(repr([leaf for leaf in tree_leaves(groups) if isinstance(leaf, Number | Tensor)]).encode())
