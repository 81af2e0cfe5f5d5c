"""What every strategy does whose workers are processes of the engine: connects Lightning's Trainer with
`scalebook.training.engine`.

Each worker runs Lightning's own loops on its share of the data. Worker 0 also validates, logs and writes checkpoints,
from a consistent snapshot.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.base import require_linux
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.applied_step import updates_estimated
from scalebook.training.lightning.async_ps.async_run import AsyncRun
from scalebook.training.lightning.async_ps.collectives import Collectives, operation_name
from scalebook.training.lightning.async_ps.refusals import refuse_optimizers
from scalebook.training.lightning.async_ps.session import LAST_MEETING, MEETINGS, ServerSession, Session
from scalebook.training.lightning.async_ps.worker_session import WorkerSession
from scalebook.training.lightning.empty_hooks import SkipsEmptyHooks
from scalebook.training.lightning.package import (
    Callback,
    ClusterEnvironment,
    LightningModule,
    ModelCheckpoint,
    ParallelStrategy,
    SingleDeviceStrategy,
    TQDMProgressBar,
    Trainer,
)
from scalebook.training.lightning.portable_checkpoint import for_workers
from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
from scalebook.training.lightning.processes.strategy_launcher import ForkLauncher, ours, repr_for_trainers
from scalebook.training.lightning.run_figures import RunFigures
from scalebook.training.lightning.worker_role import ends_here

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


def bar_totals(trainer: Trainer, gradients: int, workers: int) -> list[Callback]:
    """The callbacks to put before a Trainer's progress bars; none without a bar, with one worker, or in any worker but
    0.

    `gradients`: how many gradients all workers compute for each update.
    """
    bars = [callback for callback in trainer.callbacks if isinstance(callback, TQDMProgressBar)]  # type: ignore[attr-defined]
    return [BarTotals(bars, gradients / workers)] if bars and workers > 1 and trainer.is_global_zero else []


class BarTotals(SkipsEmptyHooks, Callback):
    """Sets the total of the training progress bars at each batch: how many batches worker 0 gets depends on the others'
    speed.

    With `max_steps`, which counts all workers' updates, the total is this worker's share of the rest, `batches` for
    each update. It comes before the bars: between refreshes a bar shows a batch only if it is the last of the total.
    """

    def __init__(self, bars: list[TQDMProgressBar], batches: float) -> None:
        self._bars, self._batches = bars, batches

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._tell(trainer, batch_idx, least=batch_idx + 1)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._tell(trainer, batch_idx + 1, least=batch_idx + 1)

    def _tell(self, trainer: Trainer, done: int, least: int) -> None:
        total = trainer.num_training_batches
        if trainer.max_steps >= 0:
            remaining = max(0, trainer.max_steps - int(trainer.global_step)) * trainer.accumulate_grad_batches
            total = min(total, max(least, done + math.ceil(remaining * self._batches)))
        for bar in self._bars:
            bar.train_progress_bar.total = None if math.isinf(total) else int(total)


def stand_first(trainer: Trainer, session: WorkerSession) -> None:
    """Put the strategy's own callbacks before all others, and remove those of an earlier fit."""
    totals = bar_totals(trainer, session.gradients_of_an_update, session.processes)
    own_callbacks: list[Callback] = [FirstCallback(session), *totals]
    kinds = {type(callback) for callback in own_callbacks}
    other_callbacks = [callback for callback in trainer.callbacks if type(callback) not in kinds]  # type: ignore[attr-defined]
    trainer.callbacks = [*own_callbacks, *other_callbacks]  # type: ignore[attr-defined]  # made by Lightning's callback connector


class FirstCallback(SkipsEmptyHooks, Callback):
    """The first callback of a worker's Trainer; it keeps nothing in checkpoints. Later hooks of callbacks and models
    may read or swap weights and loaders.

    If updates come between two batches of worker 0 and a ModelCheckpoint is about to save, it takes the snapshot before
    the file gets its name. Any other way of saving is correct too, but a name made earlier from `global_step` has
    worker 0's version, and the checkpoint, which states its own, may be some updates newer.
    """

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._saves_come_first = session.rank == 0 and session.updates_come_between_batches

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.show_data()

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.show_data()  # the loaders of this epoch may be others
        self._session.begin_epoch()

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.before_validation()

    @override
    def on_before_optimizer_step(self, *_: Any) -> None:
        self._session.before_gradient_hooks()

    @override
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._session.batch_end()
        self._before_saving(trainer, _after_batch)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.end_epoch()
        if self._saves_come_first and self._session.is_training and ends_here(trainer):
            self._session.snapshots.have()  # of all: what hooks see in the last epoch's end is what the fit leaves
        self._before_saving(trainer, _after_epoch)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._before_saving(trainer, lambda _, saves: saves.save_on_exception)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.end_training()

    def _before_saving(self, trainer: Trainer, due: Callable[[Trainer, ModelCheckpoint], bool]) -> None:
        if not self._saves_come_first or not self._session.is_training:  # an exception comes at any time
            return
        callbacks = trainer.checkpoint_callbacks
        if any(isinstance(callback, ModelCheckpoint) and due(trainer, callback) for callback in callbacks):
            self._session.snapshots.have()


def _after_batch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    if saves._every_n_train_steps >= 1 and trainer.global_step % saves._every_n_train_steps == 0:
        return True
    interval, since = saves._train_time_interval, saves._last_time_checked
    return interval is not None and since is not None and time.monotonic() - since >= interval.total_seconds()


def _after_epoch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    every = saves._every_n_epochs
    return every >= 1 and (trainer.current_epoch + 1) % every == 0 and saves._should_save_on_train_epoch_end(trainer)


class EngineStrategy(IndependentWorkers):
    """A strategy of workers that the engine connects; `read()`: its arguments, made on Linux alone."""

    def __init__(self, read: Callable[[], AsyncArguments]) -> None:
        require_linux()
        prepare_for_forks()
        super().__init__()
        self.arguments = read()
        self._loaded: Mapping[str, Any] = {}  # what the last checkpoint that was read says for us alone
        self._run = AsyncRun(self.arguments)

    @override
    def __repr__(self) -> str:
        return repr_for_trainers(self)

    @property
    @override
    def session(self) -> Session:
        return self._run.session

    @property
    def figures(self) -> RunFigures:
        """The run's measurements so far."""
        return self.session.figures

    @property
    def hands_on_data(self) -> bool:
        """After a fit: whether batches of workers that died were left to the others."""
        return self._run.hands_on_data

    @property
    def started_with(self) -> dict[str, str]:
        """Digests of what must be the same on all nodes, by key; to be filled before a fit."""
        return self._run.started_with

    # --- who is there --------------------------------------------------------------------------------------------

    @property
    def cluster_environment(self) -> ClusterEnvironment | None:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, environment: ClusterEnvironment | None) -> None:
        self._environment = ours(environment)

    @property
    def workers(self) -> int:
        """Workers of a fit, on all nodes, simulated ones included."""
        return self.num_nodes * self._on_each

    @property
    def _on_each(self) -> int:
        """Of a fit, on each machine."""
        return self.arguments.on_each(super().num_processes)

    @property
    @override
    def num_processes(self) -> int:
        """Worker processes of the present run; before it starts, of a fit."""
        return self.session.processes or (1 if self.arguments.is_simulated else self.workers)

    @property
    @override
    def local_rank(self) -> int:
        return self.session.rank - self.node_rank * self._on_each

    @property
    @override
    def root_device(self) -> torch.device:
        session = self.session  # Lightning asks for each batch
        if session.trains_on is not None:
            return session.trains_on
        return torch.device("cpu") if session.on_cpu else super().root_device

    # --- set-up and end ------------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        self._run.configure(self.num_nodes, self._on_each)
        self._launcher = ForkLauncher(self._run)

    @override
    def setup_environment(self) -> None:
        if not self.session.on_cpu:
            super().setup_environment()
        self.session.prepare(self._trainer)

    @override
    def setup(self, trainer: Trainer) -> None:
        if isinstance(self.session, ServerSession):  # the optimizers are set up as in a worker, and then it serves
            assert self.model is not None
            self.model = self.precision_plugin.convert_module(self.model)
            self.setup_optimizers(trainer)
            refuse_optimizers(self.optimizers)
            self.session.serve(self.optimizers, trainer.lightning_module)
        super().setup(trainer)
        self._run.session = self.session.set_up(trainer, self.optimizers, self.root_device)

    @override
    def setup_optimizers(self, trainer: Trainer) -> None:
        with updates_estimated(trainer, self.arguments.server, self.num_processes, self.workers):
            super().setup_optimizers(trainer)

    @override
    def barrier(self, name: str | None = None) -> None:
        """Meet the others. The strategy's own callbacks are added after the last barrier before training, so that
        `on_fit_start` sees only the user's."""
        if name not in MEETINGS:
            super().barrier(name)
            return
        self.session.synchronize(name)
        if name == LAST_MEETING and isinstance(self.session, WorkerSession):
            stand_first(self._trainer, self.session)

    @override
    def process_dataloader(self, dataloader: object) -> object:
        return self.session.process_dataloader(self._trainer, dataloader)

    @override
    def on_train_start(self) -> None:
        self.session.train_start()

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.session.batch_start()

    @override
    def on_train_end(self) -> None:
        self.session.train_end()

    @override
    def teardown(self) -> None:
        self._run.session = self.session.after_training()
        super().teardown()
        self.session.take_rank()  # Lightning's environment has forgotten it, and asks the loaders once more

    # --- training ------------------------------------------------------------------------------------------------

    @override
    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        with self.session.accumulating():
            yield

    @override
    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | Module | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the gradient, push it, pull the newest parameters: the optimizer's `step` is a push."""
        session = self.session

        def computed() -> Any:
            output = closure()
            session.computed()
            return output

        output = super().optimizer_step(optimizer, computed, model, **kwargs)
        session.stepped(optimizer)
        return output

    @override
    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Validate a batch, and give a sign of life, which restarts the deadline of workers that a rule lets wait."""
        output = super().validation_step(*args, **kwargs)
        self.session.sign_of_life()
        return output

    def version(self, optimizer: Optimizer) -> int:
        """See `CountsUpdates`."""
        return self.session.version(optimizer)

    def gradients_averaged(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.averaged_in_step(self.workers)

    def gradients_computed(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.computed_in_step(self.workers)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self.session.weights(super().lightning_module_state_dict)

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return self.session.optimizer_state(optimizer, lambda: super(EngineStrategy, self).optimizer_state(optimizer))

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        super().save_checkpoint(self.session.checkpoint(checkpoint), filepath, storage_options)
        self.session.note_checkpoint(filepath)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint, self._loaded = for_workers(super().load_checkpoint(checkpoint_path, weights_only))
        return checkpoint

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        own_state, self._loaded = self._loaded, {}  # it may be large
        self.session.resume(
            checkpoint, own_state, lambda: super(EngineStrategy, self).load_optimizer_state_dict(checkpoint)
        )
