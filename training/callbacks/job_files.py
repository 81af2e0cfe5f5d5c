"""What ties a run to its job's folder: the file that stops it, its newest checkpoint, the workers that it has lost, a
trial's curve, pictures of samples and of where the parts of a split model lie.
"""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from PIL import Image
from torch import Tensor
from typing_extensions import override

from scalebook.training.base.files import records
from scalebook.training.callbacks.computed_figures import MB
from scalebook.training.callbacks.heartbeat import fraction
from scalebook.training.callbacks.measure import Measure
from scalebook.training.jobs import STOPPED, JobFolder, LostWorker
from scalebook.training.lightning import (
    HearsOfDeaths,
    LostProcess,
    ModelParallel,
    Terminated,
    figures_of,
    why_terminated,
)
from scalebook.training.pricing import part_record
from scalebook.training.tracking import Axes, names, upload

FIRST_STEPS: Final = 2
MOST_STEPS: Final = 1000


class AgreedDecision:
    """Calls `decide` about every `every_s` seconds and passes the answer to every worker.

    Synchronous workers (DDP) must all call `now` at the same batches: worker 0 broadcasts its decision together with
    the number of batches until the next one, so that the exchange (0.3 ms) is as rare. Asynchronous workers decide each
    for itself.
    """

    def __init__(self, decide: Callable[[], bool], every_s: float) -> None:
        self.decide = decide
        self.every_s = every_s
        self._next_time = 0.0
        self._steps_left = FIRST_STEPS
        self._asked = time.monotonic()
        self._steps = FIRST_STEPS

    def now(self, trainer: Trainer) -> bool:
        """Whether all workers shall act after this batch."""
        if trainer.world_size == 1 or figures_of(trainer) is not None:
            return self._by_clock()
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        decision, self._steps = trainer.strategy.broadcast((self.decide(), self._pace()))
        self._steps_left, self._asked = self._steps, time.monotonic()
        return decision

    def _by_clock(self) -> bool:
        now = time.monotonic()
        if now < self._next_time:
            return False
        self._next_time = now + self.every_s
        return self.decide()

    def _pace(self) -> int:
        """Batches that will take about `every_s`, judged by the last ones."""
        step_s = max(1e-6, (time.monotonic() - self._asked) / self._steps)
        return max(1, min(MOST_STEPS, math.ceil(self.every_s / step_s)))


LOOK_EVERY_S: Final = 0.3


class StopFile(Callback):
    """Ends training after the batch in which the file appears, like a used-up budget.

    A SIGTERM that asks for a stop creates the file. The SIGTERM with which a monitor ends what is left of a run that
    has died does not: it ends only the process. Under DDP all workers stop after the same batch; with an asynchronous
    strategy the first that sees the file tells the others through the strategy. `min_epochs` and `min_steps` do not
    delay a stop. A worker that ends before the budget is used up leaves the file `cut`: without it the run counts as
    finished.
    """

    def __init__(self, job: JobFolder, measure: Measure) -> None:
        self.job, self.measure = job, measure
        self._asked = AgreedDecision(self._is_asked, LOOK_EVERY_S)
        self._terminated = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():
            rank = trainer.global_rank if trainer.world_size > 1 else None
            signal.signal(signal.SIGTERM, lambda *_: self._terminate(rank))

    def _terminate(self, rank: int | None) -> None:
        self._terminated = True
        if (why := why_terminated()) is Terminated.BY_MONITOR:
            return
        passed_on = rank is None or why is Terminated.PASSED_ON
        who = "the run" if passed_on else f"worker {rank} (process {os.getpid()})"
        with suppress(OSError):  # a full disk; training ends all the same
            self.job.ask_to_stop(f"{STOPPED} by SIGTERM to {who}", "signal")

    def _is_asked(self) -> bool:
        return self._terminated or self.job.stop_file.exists()

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if self._asked.now(trainer):
            if fraction(trainer, self.measure.counts().updates) != 1.0:
                self.job.cut.touch()
            trainer.fit_loop.min_epochs = None
            trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True


class LossRecorder(Callback, HearsOfDeaths):
    """The monitor writes into the job's folder which workers have died while the others went on."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job

    @override
    def worker_died(self, lost: LostProcess, samples: int, *, restarted: bool) -> None:
        try:
            self.job.note_lost(LostWorker(lost.number, time.time(), lost.cause, samples, restarted))
        except OSError as error:  # the run goes on, and the log has it
            print(f"scalebook: warning: the loss of worker {lost.number} could not be recorded: {error}", flush=True)


def left_by_lost(job: JobFolder, trainer: Trainer) -> str:
    """After a run that has lost workers: what became of their data, in words. Worker 0, which never is one of them, had
    as large a share as they."""
    figures, lost = figures_of(trainer), {worker.worker for worker in job.lost_workers()}
    if figures is None or not lost:
        return ""
    if getattr(trainer.strategy, "hands_on_data", False):
        return "the remaining workers took over the rest of the data"
    if figures.max_updates is not None and figures.counts().updates >= figures.max_updates:
        return "the remaining workers made the rest of the updates"
    samples = [times.samples for times in figures.worker_times()]
    return f"about {sum(max(0, samples[0] - samples[worker]) for worker in lost):,} samples were not trained"


class CurveWriter(Callback):
    """Worker 0 appends a line after each validation; without validations, after each epoch, with training metrics.

    `{"updates": 90, "samples": 2880, "seconds": 0.41, "bytes": 0.0, "metrics": {"val/loss": 1.2}}`. It comes after
    `measure` in the Trainer's list, which fixes the axes of a validation and gathers its metrics.
    """

    def __init__(self, job: JobFolder, measure: Measure) -> None:
        self.job, self.measure = job, measure
        self._at: Axes | None = None

    @override
    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at = self.measure.axes()

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and self._at is not None:
            self._append(trainer, self._at, self.measure.summary.last)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._at is None:
            self._append(trainer, self.measure.axes(), self.measure.latest)

    def _append(self, trainer: Trainer, axes: Axes, metrics: dict[str, float]) -> None:
        if not trainer.is_global_zero or not metrics:
            return
        point: dict[str, Any] = {**_known(axes), "metrics": metrics}
        with self.job.curve.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(point)}\n")


def _known(axes: Axes) -> dict[str, float]:
    """JSON has no NaN."""
    return {name: value for name, value in axes._asdict().items() if not math.isnan(value)}


DRAWN: Final = 16
LEAST_SIDE: Final = 320
"""The picture's smallest side, pixels; small images are enlarged, each pixel to a square."""


class Pictures(Callback):
    """Worker 0 writes a picture into `folder` and the run's artifacts, when training ends.

    A model with `sample_images(n)`, which returns [n, channels, height, width] in 0..1, is asked for 16 images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        sample: Any = getattr(pl_module, "sample_images", None)
        split = trainer.strategy if isinstance(trainer.strategy, ModelParallel) else None  # a part for each worker
        if (trainer.is_global_zero or split is not None) and callable(sample):
            with nullcontext(True) if split is None else split.whole_model() as asks:
                images = _drawn(pl_module, sample) if asks else None
            if images is not None and trainer.is_global_zero:
                path = self.folder / names.SAMPLES_PICTURE
                grid(images).save(path)
                upload(trainer, path)


def _drawn(module: LightningModule, sample: Callable[[int], Tensor]) -> Tensor:
    training = module.training
    module.eval()
    with torch.no_grad():
        images = sample(DRAWN)
    module.train(training)
    return images


def grid(images: Tensor) -> Image.Image:
    """Images [n, 1 or 3, height, width] in 0..1 side by side in a square, with a border of one pixel."""
    count, channels, height, width = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = torch.full((channels, rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for i, image in enumerate(images.detach().float().clamp(0, 1).cpu()):
        top, left = 1 + i // columns * (height + 1), 1 + i % columns * (width + 1)
        sheet[:, top : top + height, left : left + width] = image
    pixels = (sheet * 255).round().to(torch.uint8).permute(1, 2, 0)
    picture = Image.fromarray((pixels[:, :, 0] if channels == 1 else pixels).numpy())
    scale = max(1, math.ceil(LEAST_SIDE / max(picture.size)))
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)


class PartsRecorder(Callback):
    """Worker 0 writes `parts.json` into `folder` once an epoch has been measured, and logs its totals; at the end it
    becomes an artifact. Other strategies than ModelParallel have none."""

    def __init__(self, folder: Path, measure: Measure) -> None:
        self.folder, self._measure = folder, measure
        self._written: part_record.PartRecord | None = None

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if self._written is None:
            self._write(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer)

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._written is not None:
            upload(trainer, self.folder / names.PARTS_JSON)

    def _write(self, trainer: Trainer) -> None:
        record = getattr(trainer.strategy, "parts", None)
        if not trainer.is_global_zero or not isinstance(record, part_record.PartRecord) or record == self._written:
            return
        self._written = record
        records.save(self.folder / names.PARTS_JSON, record.content())
        points = totals(record)
        self._measure.latest.update(points)
        for logger in trainer.loggers:
            logger.log_metrics(points, step=self._measure.axes().updates)


def totals(record: part_record.PartRecord) -> dict[str, float]:
    """What a run's metrics say of its parts; idle shares where they were measured and not all 0."""
    shares = {names.PARTS_BUBBLE: "bubble", names.PARTS_UNEVEN: "uneven", names.PARTS_LINK: "link"}
    return {
        names.PARTS_SENT: record.sent,
        names.PARTS_MEMORY: max(worker.memory for worker in record.workers) / MB,
        **{name: share for name, reason in shares.items() if (share := record.idle(reason))},
    }


SAVE_EVERY_S: Final = 60.0
"""The most training time lost when a run dies, s. Saving each short epoch would cost more than the epoch."""

ASK_S: Final = 5.0


class LastCheckpoint(Checkpoint):
    """Writes `last.ckpt` into `folder` after each minute of training, and when training ends.

    The file is replaced atomically, so it is always complete. Under DDP all workers take part; with an asynchronous
    strategy worker 0 writes a consistent snapshot while the others go on. A simulated run that is asked to stop is
    saved at once, in the middle of an epoch: at the end Lightning would have counted that epoch as over.
    """

    def __init__(self, folder: Path, every_s: float = SAVE_EVERY_S) -> None:
        super().__init__()
        self.path = folder / "last.ckpt"
        self.every_s = every_s
        self._saved = time.monotonic()
        self._paused = False
        self._due = AgreedDecision(lambda: time.monotonic() - self._saved >= self.every_s, min(ASK_S, every_s))

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved, self._paused = time.monotonic(), False

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self._paused = trainer.should_stop and saves_where_it_is(trainer)
        if self._due.now(trainer) or self._paused:
            self._save(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._paused:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        beside = self.path.with_suffix(".part")
        trainer.save_checkpoint(beside)
        if trainer.is_global_zero:
            beside.replace(self.path)
        self._saved = time.monotonic()


def saves_where_it_is(trainer: Trainer) -> bool:
    """Whether a run that is asked to stop is saved in the middle of its epoch, before Lightning counts that as over."""
    figures = figures_of(trainer)
    return figures is not None and figures.is_simulated and trainer.fit_loop._can_stop_early
