"""Records which part of a split model lies where, for the run's page while it runs and as an artifact when it ends."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.base.files import records
from scalebook.training.lightning.callbacks.computed_figures import MB
from scalebook.training.lightning.callbacks.measure import Measure
from scalebook.training.pricing.part_record import PartRecord
from scalebook.training.tracking import names
from scalebook.training.tracking.logger import upload


class PartsRecorder(Callback):
    """Worker 0 writes `parts.json` into `folder` once an epoch has been measured, and logs its totals; at the end it
    becomes an artifact. Other strategies than ModelParallel have none."""

    def __init__(self, folder: Path, measure: Measure) -> None:
        self.folder, self._measure = folder, measure
        self._written: PartRecord | None = None

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
        if not trainer.is_global_zero or not isinstance(record, PartRecord) or record == self._written:
            return
        self._written = record
        records.save(self.folder / names.PARTS_JSON, record.content())
        points = totals(record)
        self._measure.latest.update(points)
        for logger in trainer.loggers:
            logger.log_metrics(points, step=self._measure.axes().updates)


def totals(record: PartRecord) -> dict[str, float]:
    """What a run's metrics say of its parts; idle shares where they were measured and not all 0."""
    shares = {names.PARTS_BUBBLE: "bubble", names.PARTS_UNEVEN: "uneven", names.PARTS_LINK: "link"}
    return {
        names.PARTS_SENT: record.sent,
        names.PARTS_MEMORY: max(worker.memory for worker in record.workers) / MB,
        **{name: share for name, reason in shares.items() if (share := record.idle(reason))},
    }
