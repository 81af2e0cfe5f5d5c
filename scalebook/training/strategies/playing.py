"""Virtual workers under Lightning: what a process that plays all of them tells the engine of model, data and clock."""

import random
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.worker.end import Need
from scalebook.training.strategies.forking import Forking
from scalebook.training.strategies.launcher import Processes
from scalebook.training.strategies.lightning import Trainer
from scalebook.training.strategies.random_streams import streams_of
from scalebook.training.strategies.refused import announce_memory, refuse_playing


class Playing(Forking):
    """One Trainer in one process, whose batches are those of all workers in the order in which their gradients are due.

    To Lightning it is a single worker. Before each batch the loader asks whose turn it is, and the model becomes that
    worker's; `optimizer.step` is that worker's push. Validation and checkpoints look at the newest version of that
    virtual moment; they take no virtual time.
    """

    _python: tuple[Any, ...] | None = None  # its random numbers before the fork

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        self._python = random.getstate()
        return super().before_fork(trainer)

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Python's random numbers go on in a process that plays: Python seeds them anew after a fork."""
        super().after_fork(worker, trainer)
        if self._playing is not None and self._python is not None:
            random.setstate(self._python)

    def play_if_virtual(self, trainer: Trainer) -> None:
        """Before the workers join, with the model where it will be trained. ValueError for what cannot be played."""
        if self._playing is None:
            return
        assert self._buffers is not None
        refuse_playing(trainer)
        buffers = self._buffers

        def begins(worker: int, own: list[Tensor]) -> None:
            self._follow_schedules()  # the rate of its gradient is that of the version it computes from
            buffers.take(worker, sum(self._versions()), own)

        streams = streams_of(self.root_device)
        self._playing.play(self._own_data.work, buffers.now, begins, buffers.show_own, torch.initial_seed(), streams)

    def announce(self, need: Need) -> None:
        """What a run of some size takes: memory, which may be refused."""
        announce_memory(need, self.root_device)

    def go_on_if_virtual(self) -> None:
        """When the workers have started: the clock goes on where the checkpoint was, if there is one. All pull then, as
        real workers do: gradients that were under way are computed anew."""
        if self._playing is None or self._resumed is None:
            return
        if "clock_s" in self._ours:
            self._playing.go_on_from(self._ours["clock_s"])
        self._ours = {}  # it may be large

    @override
    def _clock_state(self) -> dict[str, Any]:
        if self._playing is None:
            return {}
        return {"clock_s": self._playing.now()}
