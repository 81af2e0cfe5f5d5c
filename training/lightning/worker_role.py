"""What the Trainers of other processes leave to worker 0."""

from typing import Any

from scalebook.training.lightning.package import Checkpoint, EarlyStopping, Trainer, _is_max_limit_reached


def train_only(trainer: Trainer) -> None:
    """Make a worker other than 0 leave validation, checkpoints and early stopping to worker 0."""
    callbacks = [c for c in trainer.callbacks if not isinstance(c, Checkpoint | EarlyStopping)]  # type: ignore[attr-defined]
    trainer.callbacks = callbacks  # type: ignore[attr-defined]  # made by Lightning's callback connector
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0


def serve_only(trainer: Trainer) -> None:
    """Make the Trainer of a server process only set up the model and its optimizers: it logs and saves nothing.
    Callbacks stay, since some change the model in `setup`."""
    train_only(trainer)
    trainer.loggers = []


def end_now(trainer: Trainer) -> None:
    """End this worker's training between two batches, as if its `max_steps` were reached."""
    trainer.fit_loop.epoch_loop.max_steps = int(trainer.global_step)


def ends_here(trainer: Trainer) -> bool:
    """Whether this worker has finished training: its epochs or the updates are used up, or the Trainer was asked to
    stop."""
    fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
    if trainer.should_stop and fit._can_stop_early:
        return True
    if _is_max_limit_reached(epoch.global_step, epoch.max_steps):
        return True
    assert isinstance(fit.max_epochs, int)
    epochs: Any = fit.epoch_progress.current  # Lightning types it too widely
    begun: int = epochs.started  # the present one included, once its first hooks are over
    is_over = epochs.processed >= begun or epoch._num_ready_batches_reached()  # the first of one without a batch, too
    return _is_max_limit_reached(begun, fit.max_epochs) and is_over
