"""What the Trainer of an asynchronous worker does, and what it leaves to worker 0."""

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from lightning.pytorch.loops.utilities import _is_max_limit_reached
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.optim import Optimizer


def train_only(trainer: Trainer) -> None:
    """Make a worker other than 0 leave validation, checkpoints and the decisions that hang on them to worker 0."""
    kept = [c for c in trainer.callbacks if not isinstance(c, Checkpoint | EarlyStopping)]  # type: ignore[attr-defined]
    trainer.callbacks = kept  # type: ignore[attr-defined]  # made by Lightning's callback connector
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0


def the_optimizer(trainer: Trainer, optimizers: list[Optimizer], workers: int) -> Optimizer:
    """The one optimizer of the run; ValueError, naming key and remedy, for what the strategy does not support."""
    problem = None
    if len(optimizers) != 1:
        problem = f"model: AsyncPS needs exactly one optimizer, but configure_optimizers returned {len(optimizers)}"
    elif isinstance(trainer.precision_plugin, MixedPrecision) and trainer.precision_plugin.scaler is not None:
        problem = "trainer.precision: AsyncPS does not scale losses. Use 32-true or bf16-mixed"
    elif trainer._accelerator_connector._layer_sync is not None:
        problem = "trainer.sync_batchnorm: asynchronous workers have no common batch. Set it to false"
    elif workers > 1 and any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs):
        problem = "lr_scheduler: only worker 0 validates, so ReduceLROnPlateau cannot follow. Use another scheduler"
    if problem:
        raise ValueError(f"{problem}, or another strategy.")
    return optimizers[0]


def ends_here(trainer: Trainer) -> bool:
    """Whether this worker will not train again: the budget of epochs or updates is used up, or it was asked to stop."""
    fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
    if trainer.should_stop and fit._can_stop_early:
        return True
    if _is_max_limit_reached(epoch.global_step, epoch.max_steps):
        return True
    assert isinstance(fit.max_epochs, int)
    begun = fit.epoch_progress.current.ready  # epochs, the present one included
    return _is_max_limit_reached(begun, fit.max_epochs) and epoch._num_ready_batches_reached()


def end_after_this_step(trainer: Trainer) -> None:
    """Called inside an optimizer step: make it this worker's last, as if its own `max_steps` had been reached."""
    trainer.fit_loop.epoch_loop.max_steps = trainer.fit_loop.epoch_loop.global_step + 1
