"""Reports a run's progress, once a second, in the job's folder and ever more rarely in its log."""

import time
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Timer
from typing_extensions import override

from scalebook.training.callbacks.measure import Measure
from scalebook.training.jobs import JobFolder, Progress, SystemMetrics, UsageMeter
from scalebook.training.lightning import figures_of
from scalebook.training.tracking import RunLogger, names

EVERY_S: Final = 1.0
FIRST_LINE_S: Final = 2.0
LONGEST_LINE_S: Final = 60.0
Phase = Literal["starting", "training", "validating", "ending"]
SHOWN: Final = 3
"""The most validation metrics in a line."""


class Heartbeat(Callback):
    """Worker 0 writes `progress.json` every second between batches, and a line to the log ever more rarely. It also
    sends the job's system metrics to MLflow, and samples them itself if no supervisor does.

    `lines` is off if a progress bar is shown.
    """

    def __init__(self, job: JobFolder, measure: Measure, *, lines: bool) -> None:
        self.job, self.measure, self.lines = job, measure, lines
        self._next = 0.0
        self._next_line = 0.0
        self._begun = monotonic()
        self._system = SystemMetrics(job)
        self._meter: UsageMeter | None = None

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._begun = monotonic()
        self._next_line = self._begun + FIRST_LINE_S
        started = self.job.started()
        if started is not None and started.inline and trainer.is_global_zero:
            self._meter = UsageMeter(self.job, started)
        self._beat(trainer, "starting")

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and (message := made_again(trainer.ckpt_path, self.measure.counts().updates)):
            print(message, flush=True)

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if monotonic() >= self._next:
            self._beat(trainer, "training")

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if monotonic() >= self._next:
            self._beat(trainer, "validating")

    @override
    def on_validation_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if monotonic() >= self._next:
            self._beat(trainer, "validating")

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._beat(trainer, "ending")

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._beat(trainer, "ending")
        if trainer.is_global_zero:
            self._say(self._progress(trainer, "ending"))

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        with suppress(OSError):  # a full disk must not hide the exception
            self._beat(trainer, "ending")

    def _beat(self, trainer: Trainer, phase: Phase) -> None:
        now = monotonic()
        self._next = now + EVERY_S
        if not trainer.is_global_zero:
            return
        progress = self._progress(trainer, phase)
        self.job.write(progress)
        self._tell_usage(trainer, now)
        if now >= self._next_line and phase != "ending":
            self._next_line = now + min(LONGEST_LINE_S, max(FIRST_LINE_S, (now - self._begun) / 5))
            self._say(progress)

    def _tell_usage(self, trainer: Trainer, now: float) -> None:
        if self._meter is not None:
            self._meter.sample(now)
        if not self.measure.latest:
            return  # MLflow's pages begin with the metric that came first: it is to be one of training
        loggers = [logger for logger in trainer.loggers if isinstance(logger, RunLogger)]
        for metrics, step, timestamp in self._system.news():
            for logger in loggers:
                logger.log_system(metrics, step, timestamp)

    def _progress(self, trainer: Trainer, phase: Phase) -> Progress:
        counts, seconds = self.measure.counts(), self.measure.seconds()
        finished = fraction(trainer, counts.updates)
        left_s = self.measure.real_seconds() * (1 - finished) / finished if finished else None
        return Progress(
            time=time.time(),
            phase=phase,
            updates=counts.updates,
            samples=counts.samples,
            seconds=seconds,
            epoch=trainer.current_epoch,
            fraction=finished,
            left_s=left_s,
            metrics=dict(self.measure.latest),
        )

    def _say(self, progress: Progress) -> None:
        if self.lines:
            measured = self.measure.measured
            print(line(progress, measured is not None and measured.is_simulated), flush=True)


def fraction(trainer: Trainer, updates: int) -> float | None:
    """The used fraction of the budget, 0 to 1: of updates, epochs or time, whichever is furthest; None without a
    budget."""
    parts: list[float] = []
    figures = figures_of(trainer)
    budget = (figures and figures.max_updates) or trainer.max_steps
    if budget > 0:
        parts.append(updates / budget)
    batches = trainer.num_training_batches
    if trainer.max_epochs is not None and trainer.max_epochs > 0 and 0 < batches < float("inf"):
        loop = trainer.fit_loop
        before = max(0, loop.epoch_progress.current.ready - 1)  # an epoch that was cut short counts as completed, too
        parts.append((before + min(1.0, (loop.epoch_loop.batch_idx + 1) / batches)) / trainer.max_epochs)
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # made by Lightning's callback connector
        if isinstance(callback, Timer) and (remaining := callback.time_remaining()) is not None:
            elapsed = callback.time_elapsed()
            parts.append(elapsed / max(1e-9, elapsed + max(0.0, remaining)))
    return min(1.0, max(parts)) if parts else None


def made_again(checkpoint: str | Path | None, updates: int) -> str:
    """A line on the updates that the run which wrote `checkpoint` made after it, and that are lost; "" if none are, or
    that is not known. It may have made more in the second after its last heartbeat."""
    records = (JobFolder(folder).progress() for folder in (Path(checkpoint).parents if checkpoint else ()))
    before = next((progress for progress in records if progress is not None), None)
    if before is None or before.updates <= updates:
        return ""
    lost = before.updates - updates
    made = f"The earlier run had made at least {before.updates:,} updates, so {lost:,} updates are repeated."
    return f"Resumes at update {updates:,}. {made}"


def line(progress: Progress, simulated: bool = False) -> str:
    """One line for people: `42 % epoch 4 1,440 updates 12.3 s train/loss 0.123 ...`; if `simulated`, `12.3 virtual
    s`."""
    words = [] if progress.fraction is None else [f"{progress.fraction:4.0%}"]
    words += [
        f"epoch {progress.epoch_under_way}",
        f"{progress.updates:,} updates",
        f"{progress.seconds:.1f} {'virtual ' * simulated}s",
    ]
    validated = names.validation_metrics(progress.metrics)
    main = names.main_metric(validated)
    metrics = [names.TRAIN_LOSS, *sorted(validated, key=lambda name: name != main)[:SHOWN], names.UPDATES_PER_SECOND]
    words += [f"{name} {progress.metrics[name]:.4g}" for name in metrics if name in progress.metrics]
    if progress.left_s is not None and progress.phase != "ending":
        words.append(f"{progress.left_s:.0f} s left")
    return "  ".join(words)
