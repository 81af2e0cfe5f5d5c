"""What every strategy does whose workers are processes of the engine: connects Lightning's Trainer with
`scalebook.training.engine`.

Each worker runs Lightning's own loops on its share of the data. Worker 0 also validates, logs and writes checkpoints,
from a consistent snapshot.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.base.system import require_linux
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.async_run import AsyncRun
from scalebook.training.lightning.async_ps.first_hooks import stand_first
from scalebook.training.lightning.async_ps.refusals import refuse_optimizers
from scalebook.training.lightning.async_ps.schedules import updates_estimated
from scalebook.training.lightning.async_ps.session import LAST_MEETING, MEETINGS, ServerSession, Session
from scalebook.training.lightning.async_ps.worker_hooks import IndependentWorkers
from scalebook.training.lightning.async_ps.worker_session import WorkerSession
from scalebook.training.lightning.package import ClusterEnvironment, LightningModule, Trainer
from scalebook.training.lightning.portable_checkpoint import for_workers
from scalebook.training.lightning.processes.cuda_fork import count_gpus_apart
from scalebook.training.lightning.processes.strategy_launcher import ForkLauncher, ours, repr_for_trainers
from scalebook.training.lightning.run_figures import RunFigures


class EngineStrategy(IndependentWorkers):
    """A strategy of workers that the engine connects; `read()`: its arguments, made on Linux alone."""

    def __init__(self, read: Callable[[], AsyncArguments]) -> None:
        require_linux()
        count_gpus_apart()
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
        return torch.device("cpu") if self.session.on_cpu else super().root_device

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
