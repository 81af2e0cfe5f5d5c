"""Where in the program a worker is when it is asked for a collective: who else will come, and in what order."""

import sys
from enum import Enum
from types import FrameType
from typing import Any, Final

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping

from scalebook.training.ps.worker.end import AFTER, IN_BATCH, boundary

_OWN: Final = ("lightning.pytorch.", "lightning.fabric.")
_FOR_THE_USER: Final = ("lightning.pytorch.core.module", "lightning.pytorch.demos.")
_LOGGED: Final = "lightning.pytorch.trainer.connectors.logger_connector.result"
"""`log` with `sync_dist`, and metrics: computed in every worker, in whichever callback asks first."""
_BETWEEN: Final = ("scalebook.training.strategies.", "lightning_utilities.", "torchmetrics.", "torch.")


class Stage(Enum):
    """How far a worker's fit has come."""

    PREPARING = "preparing"  # data, in worker 0 alone
    BEFORE = "before training"
    TRAINING = "training"
    AFTER = "after training"


class Places:
    """Where in its fit one worker is. The strategy sets `stage`."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.stage = trainer, Stage.PREPARING
        self._last: tuple[int, ...] = ()
        self._calls = 0  # since `_last`

    @property
    def alone(self) -> bool:
        """Whether no other worker makes this call: worker 0 prepares data or validates, or the caller is Lightning's
        own bookkeeping or a callback that only worker 0 has (checkpoints, early stopping)."""
        if self.stage is Stage.PREPARING or not self._trainer.training:
            return True
        return _asked_by_lightning(sys._getframe(1))

    @property
    def logs(self) -> bool:
        """Whether every worker may log in the present hook, in an epoch that ends for all of them together."""
        module = self._trainer.lightning_module
        hook = None if module is None else module._current_fx_name
        begun = self.stage is Stage.TRAINING or hook == "on_train_start"
        return hook is not None and begun and self._trainer.training

    def next(self) -> int:
        """The number of the place of this call, as `Meetings.meet` takes it; counts the calls made in one place."""
        if self.stage is Stage.AFTER:
            return AFTER
        where = self._where()
        self._calls = self._calls + 1 if where == self._last else 0
        self._last = where
        if len(where) == 1:
            return IN_BATCH + self._calls
        epoch, kind = where
        return boundary(epoch, kind, self._calls)

    @property
    def at_boundary(self) -> bool:
        """Whether this worker is between batches."""
        return len(self._where()) == 2

    def _where(self) -> tuple[int, ...]:
        """(batch,) inside a batch; (epoch, kind) between batches, kind 0: before the epoch's first, 1: after its last,
        2: the epoch is over."""
        fit = self._trainer.fit_loop
        batch = fit.epoch_loop.batch_progress
        epoch: Any = fit.epoch_progress.current  # Lightning types it too widely
        if batch.current.ready != batch.current.completed:
            return (batch.total.ready,)
        if epoch.ready == epoch.completed:
            return (epoch.ready, 2)
        return (epoch.ready, int(epoch.processed == epoch.ready))


def _asked_by_lightning(frame: FrameType | None) -> bool:
    """Whether a call comes from Lightning's own code, or from within a callback that only worker 0 has, and not from
    the user's."""
    asked_by = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not asked_by and not module.startswith(_BETWEEN):
            asked_by = module
            if module == _LOGGED:
                return False
            if module.startswith(_OWN) and not module.startswith(_FOR_THE_USER):
                return True
        if isinstance(frame.f_locals.get("self"), Checkpoint | EarlyStopping):
            return True
        frame = frame.f_back
    return False
