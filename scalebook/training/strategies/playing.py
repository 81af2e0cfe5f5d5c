"""Virtual workers under Lightning: what a process that plays all of them tells the engine of model, data and clock."""

from typing import Any

import torch
from lightning.pytorch import Trainer
from typing_extensions import override

from scalebook.training.strategies.forking import Forking
from scalebook.training.strategies.refused import refuse_playing


class Playing(Forking):
    """One Trainer in one process, whose batches are those of all workers in the order in which their gradients are due.

    To Lightning it is a single worker. Before each batch the loader asks whose turn it is, and the model becomes that
    worker's; `optimizer.step` is that worker's push. Validation and checkpoints look at the newest version of that
    virtual moment; they take no virtual time.
    """

    def play_if_virtual(self, trainer: Trainer) -> None:
        """Before the workers join, with the model where it will be trained. ValueError for what cannot be played."""
        if self._playing is None:
            return
        assert self._statistics is not None
        refuse_playing(trainer)
        statistics = self._statistics

        def begins(worker: int) -> None:
            self._follow_schedules()  # the rate of its gradient is that of the version it computes from

        buffers = [buffer for buffer in trainer.lightning_module.buffers() if not statistics.has(buffer)]
        self._playing.play(self._own_data.work, buffers, begins, statistics.be, torch.initial_seed())

    def go_on_if_virtual(self) -> None:
        """When training starts: the clock goes on where the checkpoint was, if there is one."""
        if self._playing is not None and self._resumed is not None and "clock_s" in self._ours:
            self._playing.go_on_from(self._ours["clock_s"])

    @override
    def _clock_state(self) -> dict[str, Any]:
        return {} if self._playing is None else {"clock_s": self._playing.now()}
