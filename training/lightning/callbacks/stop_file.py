"""Ends a run on request: by a file in the job's folder, or SIGTERM."""

import signal
import threading
from typing import Any, Final

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.lightning.callbacks.agreement import AgreedDecision
from scalebook.training.lightning.callbacks.heartbeat import fraction
from scalebook.training.lightning.callbacks.measure import Measure

EVERY_S: Final = 0.3


class StopFile(Callback):
    """Ends training after the batch in which the file appears, like a used-up budget.

    SIGTERM creates the file. Under DDP all workers stop after the same batch; with an asynchronous strategy the first
    that sees it tells the others through the strategy. `min_epochs` and `min_steps` do not delay a stop. A worker that
    ends before the budget is used up leaves the file `cut`: without it the run counts as finished.
    """

    def __init__(self, job: JobFolder, measure: Measure) -> None:
        self.job, self.measure = job, measure
        self._asked = AgreedDecision(job.stop_file.exists, EVERY_S)

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self.job.stop_file.touch())

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if self._asked.now(trainer):
            if fraction(trainer, self.measure.counts().updates) != 1.0:
                self.job.cut.touch()
            trainer.fit_loop.min_epochs = None
            trainer.fit_loop.epoch_loop.min_steps = None
            trainer.should_stop = True
