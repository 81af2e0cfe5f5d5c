"""Asynchronous SGD under Lightning: the glue between its Trainer and the parameter server in `training.ps`.

Each worker runs Lightning's own loops on its share of the data and, once training has begun, never waits for another.
Worker 0 also validates, logs and writes checkpoints, from a consistent snapshot, while the others go on.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from lightning.fabric.utilities.data import has_iterable_dataset
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from typing_extensions import override

from training.ps import Joined, Settings, SharedRun, Snapshot, join
from training.ps.membership import Membership
from training.ps.region import STOP
from training.ps.rules import RuleName, make_rule
from training.strategies.independent import IndependentWorkers
from training.strategies.launcher import ForkLauncher, take_rank
from training.strategies.shared_measures import SharedMeasures
from training.strategies.worker_role import end_after_this_step, ends_here, the_optimizer, train_only

MEETINGS: Final = {"pre_setup", "post_setup", "_CheckpointConnector.resume_end", "run-stage"}
"""Lightning's barriers before training, at which workers do wait for each other. At all later ones they do not."""
CHECKPOINT_KEY: Final = "async_ps"


class AsyncPS(SharedMeasures, IndependentWorkers):
    """Workers that share parameters and optimizer state, and update them without waiting for each other.

    Args:
        rule: What happens with a gradient that arrives. `async`: it is applied at once (Downpour SGD).
        workers: Worker processes; more than there are devices share them in turn. None: one for each device.
        deadline_s: Seconds after which any wait for another process counts as failed.
    """

    strategy_name = "async_ps"

    def __init__(self, rule: RuleName = "async", workers: int | None = None, deadline_s: float = 600.0) -> None:
        super().__init__()
        if workers is not None and workers < 1:
            raise ValueError(f"trainer.strategy.init_args.workers: {workers} is less than 1. Use 1 or more, or null.")
        if deadline_s <= 0:
            raise ValueError(f"trainer.strategy.init_args.deadline_s: {deadline_s:g} is not positive. Use 600.")
        self.rule: RuleName = rule
        self.workers = workers
        self.deadline_s = deadline_s
        self._forked = 0  # workers of this run; 0 before it starts
        self._run: SharedRun | None = None
        self._membership: Membership | None = None
        self._joined: Joined | None = None
        self._snapshot: Snapshot | None = None  # of the version that worker 0's replica has

    @property
    @override
    def num_processes(self) -> int:
        """Workers of the run; before it starts, of a fit."""
        return self._forked or self.workers or super().num_processes

    # --- start and end -------------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        self._launcher = ForkLauncher(self)

    def before_fork(self, trainer: Trainer) -> int:
        """Make what the workers share. Whatever is not training needs one worker only."""
        self._forked = self.num_processes if trainer.state.fn == TrainerFn.FITTING else 1
        if trainer.state.fn == TrainerFn.FITTING:
            max_updates = None if trainer.max_steps == -1 else trainer.max_steps
            settings = Settings(rule=make_rule(self.rule), max_updates=max_updates)
            self._run = SharedRun(self._forked, settings)
        return self._forked

    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Become worker `worker`."""
        self._worker = worker
        take_rank(worker)
        if self._run is not None:
            self._membership = self._run.member(worker, self.deadline_s)

    def after_workers(self) -> None:
        """Let go of the shared memory, and of the number of workers, which the next call may choose anew."""
        if self._run is not None:
            self._run.close()
        self._run, self._forked = None, 0

    @override
    def setup_environment(self) -> None:
        super().setup_environment()
        if self._worker > 0:
            train_only(self._trainer)

    @override
    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        if self._run is not None and self._membership is not None:
            optimizer = the_optimizer(trainer, self.optimizers, self.num_processes)
            self._joined = join(self._run, self._membership, [optimizer])

    @override
    def process_dataloader(self, dataloader: object) -> object:
        sharded = isinstance(dataloader, DataLoader) and not has_iterable_dataset(dataloader)
        wanted = self.is_distributed and self._trainer._accelerator_connector.use_distributed_sampler
        if self._trainer.training and wanted and not sharded:
            raise ValueError(
                "data: the training data cannot be divided among the workers, because it is not a DataLoader "
                "over a data set with a length. Use one worker, or divide it yourself and set "
                "trainer.use_distributed_sampler to false."
            )
        return dataloader

    @override
    def on_train_start(self) -> None:
        if self._worker > 0:  # its own dropout; worker 0 draws as a single process would
            torch.manual_seed(torch.initial_seed() + self._worker)

    @override
    def on_train_end(self) -> None:
        assert self._joined is not None
        self._joined.finish()
        if self._worker == 0:
            self._wait_for_others()
            self._take_snapshot()

    @override
    def teardown(self) -> None:
        if self._joined is not None:
            self._joined.detach()
            self._joined = self._snapshot = None
        super().teardown()

    # --- training ------------------------------------------------------------------------------------------------

    @override
    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | Module | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the gradient, hand it in, take the newest parameters."""
        assert self._joined is not None
        assert self._run is not None
        assert self.lightning_module is not None
        output = self.precision_plugin._wrap_closure(self.lightning_module, optimizer, closure)
        self._snapshot = None
        pushed = self._joined.clients[0].push()
        optimizer._opt_called = True  # type: ignore[attr-defined]  # what a scheduler looks at to know of a step
        trainer, head = self._trainer, self._run.control.head
        if pushed.is_last:
            end_after_this_step(trainer)
        if trainer.should_stop:
            head[STOP] = 1
        elif head[STOP]:
            trainer.should_stop = True
        return output

    @override
    def on_validation_start(self) -> None:
        if self._joined is not None:
            self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        """Parameters and optimizer state of one moment; the last one of a run waits until it includes every update."""
        assert self._joined is not None
        if not self._trainer.sanity_checking and ends_here(self._trainer):
            self._wait_for_others()
        self._snapshot = self._joined.snapshot()
        return self._snapshot

    def _wait_for_others(self) -> None:
        assert self._joined is not None
        assert self._run is not None
        if self._trainer.should_stop:
            self._run.control.head[STOP] = 1
        self._joined.finish()
        self._joined.wait_for_others()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self._joined is not None and self._worker == 0 and self._snapshot is None:
            self._take_snapshot()
        return {name: _own_storage(value) for name, value in super().lightning_module_state_dict().items()}

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        own: dict[str, Any] = super().optimizer_state(optimizer)
        if self._joined is None or self._worker != 0:
            return own
        snapshot = self._snapshot or self._take_snapshot()
        return {**snapshot.optimizers[0], "param_groups": own["param_groups"]}

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        if self._snapshot is not None:
            checkpoint[CHECKPOINT_KEY] = {"version": self._snapshot.versions[0], "samples": self.counts().samples}
        super().save_checkpoint(checkpoint, filepath, storage_options)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Every worker takes the hyper-parameters; worker 0 puts state and version back into the shard."""
        (state,) = checkpoint["optimizer_states"]
        (optimizer,) = self.optimizers
        optimizer.load_state_dict({"state": {}, "param_groups": state["param_groups"]})
        if self._worker == 0 and self._joined is not None:
            ours = checkpoint.get(CHECKPOINT_KEY, {})
            self._joined.restore([ours.get("version", checkpoint["global_step"])], [state])
            self.add_samples(ours.get("samples", 0))

    # --- meetings ------------------------------------------------------------------------------------------------

    @override
    def barrier(self, name: str | None = None) -> None:
        if self._membership is not None and name in MEETINGS:
            self._membership.rendezvous(name)
            if name == "run-stage" and self._joined is not None:
                self._joined.begin()


def _own_storage(value: Any) -> Any:
    """A tensor that is a view into a larger memory, copied out of it: torch.save writes whole storages."""
    if isinstance(value, Tensor) and value.untyped_storage().nbytes() != value.nbytes:
        return value.clone()
    return value
