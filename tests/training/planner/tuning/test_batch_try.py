"""A try of a batch size: which steps it times, and who ends it."""

import time
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from scalebook.training.base.files import records
from scalebook.training.lightning import AsyncPS
from scalebook.training.planner.tuning.batch_tries import _TryReport
from scalebook.training.planner.tuning.batch_try import BatchTry
from scalebook.training.tracking import names
from tests.gpu.models import BATCH, Dyadic, numbers
from tests.training.lightning.async_ps.small import trainer

SLEEP_S, STEP_S, UPDATES = 0.5, 0.03, 3


class WarmsUp(Callback):
    """Worker 0 takes long for its first batch, as CUDA's first step does, and longer than worker 1 for all others."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.steps = folder, 0

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            time.sleep(STEP_S if self.steps else SLEEP_S)
        self.steps += 1

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (self.folder / f"steps-{trainer.global_rank}").write_text(str(self.steps))


def test_workers_that_are_ahead_do_not_end_it_and_the_first_step_is_not_timed(tmp_path: Path) -> None:
    callbacks = [BatchTry(BATCH, UPDATES), WarmsUp(tmp_path)]
    made = trainer(
        tmp_path, AsyncPS(workers=2), max_epochs=-1, min_epochs=0, max_steps=10_000, callbacks=callbacks
    )  # fmt: skip
    made.fit(Dyadic("cpu"), numbers())
    report = records.peek(tmp_path / names.BATCH_JSON, _TryReport)
    assert report is not None
    assert report.step_s is not None
    assert 0 < report.step_s < SLEEP_S / 2
    steps = [int((tmp_path / f"steps-{worker}").read_text()) for worker in (0, 1)]
    assert steps[0] >= UPDATES
    assert steps[1] > 0
