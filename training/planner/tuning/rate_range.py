"""A learning-rate range test (Smith 2017, arXiv 1506.01186, section 3.3) under any strategy."""

import math
from pathlib import Path
from typing import Any, Final

from jsonargparse.typing import PositiveFloat, PositiveInt
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.base.files import records
from scalebook.training.callbacks import DivergenceGuard, Pictures, ScaledRates, loss_of, refuse_without_rate
from scalebook.training.lightning import CountsUpdates, ScaledRate, SkipsEmptyHooks, figures_of
from scalebook.training.planner.tuning.rate_curve import RateCurve
from scalebook.training.tracking import drawing, names, upload

MEMORY: Final = 0.9
"""Of the moving average that decides when the loss has exploded."""

FIRST_POINTS: Final = 10
LEAST_RISE: Final = 1.0
"""Of the loss at the beginning: a smaller rise above that is no explosion. Where the losses of batches spread by 40 %,
half of all tests see a rise of a quarter by chance."""


class RateRange(SkipsEmptyHooks, Callback):
    """Raises the learning rate exponentially over `updates` updates and records the loss after each.

    Ends early when the loss explodes: its moving average is above where it began by as much as it had fallen, or it is
    NaN. Worker 0 leaves `rates.json` and `rates.png` in the run's folder and artifacts, and the suggestion as metrics.

    The rate of an update is a function of the number of updates before it, by any worker: with a parameter server,
    before the version from which the gradient was computed. Groups of parameters keep the ratio of their rates. A
    schedule of the model is ignored. DDP averages the loss over the workers; with a parameter server it is worker 0's
    own.
    """

    def __init__(self, lowest: PositiveFloat = 1e-5, highest: PositiveFloat = 10.0, updates: PositiveInt = 200) -> None:
        if lowest >= highest:
            raise ConfigError("highest", f"is {highest:g}, which is not above the lowest rate, {lowest:g}", "Raise it.")
        self.lowest, self.highest, self.updates = float(lowest), float(highest), int(updates)
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.diverged = False
        self._step: ScaledRate | None = None
        self._before = self.lowest  # the rate of the update before the present one
        self._now: float | None = None  # the rate of the update that this batch made, if it made one
        self._pending: list[float] = []  # losses of batches that are accumulated into one gradient
        self._average = self._weight = 0.0
        self._first: float | None = None
        self._best = math.inf

    def rate(self, update: int) -> float:
        """The learning rate of the update that has `update` updates before it."""
        share = min(1.0, update / max(1, self.updates - 1))
        return float(self.lowest * (self.highest / self.lowest) ** share)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove callbacks that act on an exploding loss, which is what the test looks for, or draw pictures."""
        if not pl_module.automatic_optimization:
            raise ConfigError(
                "model",
                f"{type(pl_module).__name__} steps its optimizers itself, so there is no single loss and no single "
                "learning rate to test",
                "Search over the learning rates of the model instead.",
            )
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        if any(isinstance(callback, ScaledRates) for callback in callbacks):
            raise ConfigError("lr_scaling", "would change the learning rates during a range test", "Remove it.")
        remaining = [callback for callback in callbacks if not isinstance(callback, DivergenceGuard | Pictures)]
        trainer.callbacks = remaining  # type: ignore[attr-defined]  # as above

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (optimizer,) = trainer.optimizers
        if trainer.strategy.lr_scheduler_configs:
            rank_zero_warn("The range test sets the learning rate and ignores the model's schedule.")
            trainer.strategy.lr_scheduler_configs = []
        rates = [float(group.get("initial_lr", group.get("lr", 0.0))) for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if "lr" in group:
                group["lr"] = rate / rates[0] if rates[0] else 1.0
        counts = trainer.strategy if isinstance(trainer.strategy, CountsUpdates) else None
        refuse_without_rate(optimizer)
        self._step = ScaledRate(optimizer, counts, 0, self._next_rate)

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        if figures_of(trainer) is not None and trainer.global_rank > 0:
            return
        loss = loss_of(outputs)
        if loss is not None:
            mean = loss.detach().double().clone()
            if figures_of(trainer) is None:  # there worker 0 alone comes here
                mean = trainer.strategy.reduce(mean, reduce_op="mean")
            self._pending.append(float(mean) * trainer.accumulate_grad_batches)
        if self._now is not None and self._pending:
            self._take(sum(self._pending) / len(self._pending))
            self._before, self._now, self._pending = self._now, None, []
        if self.diverged:
            trainer.fit_loop.min_epochs = None
            trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end()
        if not trainer.is_global_zero:
            return
        curve = RateCurve(self.rates, self.losses, self.diverged)
        folder = Path(trainer.default_root_dir)
        records.save(folder / names.RATES_JSON, curve.as_dict())
        upload(trainer, folder / names.RATES_JSON)
        if self.rates:
            draw(curve, folder / names.RATES_PICTURE)
            upload(trainer, folder / names.RATES_PICTURE)
        suggestion = curve.suggestion()
        by_metric = {names.RATE_STEEPEST: suggestion.steepest, names.RATE_LARGEST: suggestion.largest}
        points = {name: value for name, value in by_metric.items() if value is not None}
        for logger in trainer.loggers:
            logger.log_metrics(points, step=len(self.rates))

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end()

    def _next_rate(self, update: int) -> float:
        self._now = self.rate(update)
        return self._now

    def _take(self, loss: float) -> None:
        """One point: the loss was computed before this batch's update, so it is a result of the update before."""
        if not math.isfinite(loss):
            self.diverged = True
            return
        self.rates.append(self._before)
        self.losses.append(loss)
        self._average = MEMORY * self._average + (1 - MEMORY) * loss
        self._weight = MEMORY * self._weight + (1 - MEMORY)
        now = self._average / self._weight
        if len(self.losses) < FIRST_POINTS:
            return
        if self._first is None:
            self._first = now
        self._best = min(self._best, now)
        self.diverged = now > self._first + max(self._first - self._best, LEAST_RISE * abs(self._first))

    def _end(self) -> None:
        if self._step is not None:
            self._step.uninstall()
            self._step = None


def draw(curve: RateCurve, path: Path) -> None:
    """The losses as points, smoothed as a line, the suggestion as upright lines, as PNG."""
    suggestion, smooth = curve.suggestion(), curve.smoothed()
    figure, (axes,) = drawing.figure()
    axes.plot(curve.rates, curve.losses, ".", color=drawing.AXIS, markersize=4)
    axes.plot(curve.rates, smooth, color=drawing.HUES[0], linewidth=2)
    marks: dict[str, Any] = {}
    for rate, word, style in ((suggestion.steepest, "steepest", "-"), (suggestion.largest, "largest", "--")):
        if rate is not None:
            marks[f"{word} {rate:.2g}"] = axes.axvline(rate, color=drawing.HUES[1], linestyle=style)
    drawing.log_axis(axes, "x", curve.rates[0] / 1.1, curve.rates[-1] * 1.1)
    top = max(smooth[: max(1, len(smooth) // 2)])
    axes.set_ylim(min(smooth) - 0.1 * (top - min(smooth)) - 1e-9, top + 0.5 * (top - min(smooth)) + 1e-9)
    drawing.titles(axes, "learning rate", "training loss")
    if marks:
        drawing.legend(figure, marks)
    drawing.save(figure, path)
