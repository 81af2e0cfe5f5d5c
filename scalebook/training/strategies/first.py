"""What the strategy does before every other hook. Lightning calls a strategy's own hooks last."""

from typing import Protocol

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override


def stand_first(trainer: Trainer, ours: list[Callback]) -> None:
    """Put the strategy's own callbacks before all others; those of the same types, from an earlier fit, go."""
    kinds = {type(callback) for callback in ours}
    theirs = [callback for callback in trainer.callbacks if type(callback) not in kinds]  # type: ignore[attr-defined]
    trainer.callbacks = [*ours, *theirs]  # type: ignore[attr-defined]  # made by Lightning's callback connector


class FirstHooks(Protocol):
    """What a strategy does before the hooks of callbacks and models, which may look at weights and loaders or swap
    them."""

    def show_data(self) -> None:
        """The training loaders of the next epoch are made."""

    def before_validation(self) -> None:
        """Worker 0's parameters become those that are validated."""

    def end_training(self) -> None:
        """Worker 0's parameters become the final ones."""


class First(Callback):
    """The first callback of a worker's Trainer; keeps nothing in checkpoints."""

    def __init__(self, strategy: FirstHooks) -> None:
        self._strategy = strategy

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._strategy.show_data()

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._strategy.show_data()  # the loaders of this epoch may be others

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._strategy.before_validation()

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._strategy.end_training()
