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

SLEEP_S = 0.5


class WarmsUp(Callback):
    """Worker 0 takes long for its first batch, as CUDA's first step does."""

    is_warm = False

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not self.is_warm:
            time.sleep(SLEEP_S)
        self.is_warm = True


def test_workers_that_are_ahead_do_not_end_it_and_the_first_step_is_not_timed(tmp_path: Path) -> None:
    callbacks = [BatchTry(BATCH, 3), WarmsUp()]
    made = trainer(
        tmp_path,
        AsyncPS(workers=2),
        max_epochs=-1,
        min_epochs=0,
        max_steps=10_000,
        callbacks=callbacks,
    )
    made.fit(Dyadic("cpu"), numbers())
    report = records.peek(tmp_path / names.BATCH_JSON, _TryReport)
    assert report is not None
    assert report.step_s is not None
    assert 0 < report.step_s < SLEEP_S / 2
    assert 3 < made.global_step < 10_000
