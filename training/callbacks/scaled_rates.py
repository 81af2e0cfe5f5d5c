"""The config's `lr_scaling` at run time: each step of an optimizer uses a multiple of its learning rate."""

import math
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.experiments import lr_scaling
from scalebook.training.lightning import CountsUpdates, ScaledRate, SkipsEmptyHooks, batches_at_once


class ScaledRates(SkipsEmptyHooks, Callback):
    """Multiplies the learning rates of all param groups of all optimizers, during each step only.

    A schedule runs as without scaling: one that computes a rate from the last one (CosineAnnealingLR) sees its own,
    minimum and maximum rates (`eta_min`, `max_lr`) are scaled too, and a checkpoint has the unscaled rates, so that it
    can be resumed with another batch size. A step's rate is the schedule's times the factor at the number of updates,
    which with a parameter server is the gradient's version.

    `batch_size` is that of one worker. How many gradients are averaged, and how many updates make an epoch, is known
    when training starts. With manual optimization each optimizer is assumed to step once per batch.
    """

    def __init__(self, scaling: lr_scaling.RateScaling, batch_size: int) -> None:
        self.scaling, self.batch_size = scaling, batch_size
        self.samples = batch_size
        """Samples in the mean gradient of an optimizer's step."""
        self._steps: list[ScaledRate] = []
        self._made: list[int] | None = None  # updates by optimizer: of the checkpoint resumed from, or at the end

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy = trainer.strategy
        counts = strategy if isinstance(strategy, CountsUpdates) else None
        self.samples = self.batch_size * trainer.accumulate_grad_batches
        self.samples *= counts.gradients_averaged() if counts else batches_at_once(trainer)
        epoch = self._updates_per_epoch(trainer, counts)

        def factor(updates: int) -> float:
            return self.scaling.warmed(self.samples, updates / epoch)

        for optimizer, steps in zip(trainer.optimizers, self._before(trainer), strict=True):
            refuse_without_rate(optimizer)
            self._steps.append(ScaledRate(optimizer, counts, steps, factor))

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._made = [step.updates() for step in self._steps]  # for a checkpoint that is written after this
        self._end()

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end()

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"updates": [step.updates() for step in self._steps] or self._made}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._made = state_dict["updates"]

    def _updates_per_epoch(self, trainer: Trainer, counts: CountsUpdates | None) -> float:
        """Updates of all workers in an epoch; not computed where there is no warm-up."""
        loader = trainer.fit_loop._combined_loader
        assert isinstance(loader, CombinedLoader)
        try:
            batches = math.ceil(len(loader) / trainer.accumulate_grad_batches)
        except (TypeError, NotImplementedError) as error:
            if self.scaling.warmup_epochs == 0:
                return math.inf
            raise ConfigError(
                f"{lr_scaling.KEY}.warmup_epochs",
                "needs a data set that knows its length",
                "Use 0, or warm up with a learning rate schedule.",
            ) from error
        return batches * trainer.world_size / counts.gradients_computed() if counts else batches

    def _before(self, trainer: Trainer) -> list[int]:
        """Updates before this run, by optimizer; a checkpoint without this callback says only how many in all."""
        count = len(trainer.optimizers)
        if self._made is not None and len(self._made) == count:
            return self._made
        return [trainer.global_step // max(1, count)] * count

    def _end(self) -> None:
        for step in self._steps:
            step.uninstall()
        self._steps = []


def rate_callbacks(scaling: lr_scaling.RateScaling | None, data: Namespace | None) -> list[Callback]:
    """The callbacks for a config's `lr_scaling` and `data`. ConfigError if the data has no batch size to scale by."""
    if scaling is None or scaling.rule == "none":
        return []
    batch = None if data is None else data.get("init_args.batch_size")
    if batch is None:
        raise ConfigError(lr_scaling.KEY, lr_scaling.NO_BATCH, "Remove it, or set rule: none.")
    return [ScaledRates(scaling, int(batch))]


def refuse_without_rate(optimizer: Optimizer) -> None:
    """ConfigError for an optimizer without a learning rate to scale."""
    if not all("lr" in group for group in optimizer.param_groups):
        raise ConfigError(
            lr_scaling.KEY,
            f"needs a learning rate, but {type(optimizer).__name__} has no `lr` in its param groups",
            "Remove it, or use another optimizer.",
        )
