"""Virtual workers under Lightning: what a process that plays all of them tells the engine of model, data and clock."""

import random
from typing import Any, Final

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.worker.end import Need
from scalebook.training.strategies.forking import Forking
from scalebook.training.strategies.launcher import Processes
from scalebook.training.strategies.lightning import Trainer, rank_zero_info
from scalebook.training.strategies.random_streams import streams_of
from scalebook.training.strategies.refused import announce_kept, announce_memory, refuse_playing

_UNDER_WAY: Final = "under_way"
"""In a checkpoint, under our key."""


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
        """What a run of some size takes: memory, which may be refused, and room for checkpoints."""
        announce_memory(need, self.root_device)
        if self._playing is not None:
            settings = self._playing.settings
            announce_kept(need, self.workers, 1 + settings.pull_codec.codes + settings.local.steps)

    def claimed_before(self) -> dict[str, Any] | None:
        """When training starts: what the checkpoint's workers had claimed, if these go on with what was under way."""
        state = self._ours.get(_UNDER_WAY)
        if self._playing is not None and self._resumed is not None and state is None and "clock_s" in self._ours:
            rank_zero_info(
                "Virtual workers: the checkpoint says nothing of gradients under way, which are computed anew. It was "
                "written before training, in the middle of a gradient, or when workers had come to their end."
            )
        if self._playing is None or self._resumed is None or state is None:
            return None
        if not (self._own_data.takes(self._position) and self._playing.is_under_way(state["engine"])):
            self._ours = {name: value for name, value in self._ours.items() if name != _UNDER_WAY}
            rank_zero_info(
                "Virtual workers: what was under way when the checkpoint was written is computed anew, since model, "
                "data, clock or arguments of the strategy are not those of then."
            )
            return None
        claimed: dict[str, Any] = state["claimed"]
        return claimed

    def go_on_if_virtual(self) -> None:
        """When the workers have started: the clock goes on where the checkpoint was, if there is one, with what was
        under way then, if that can be gone on with."""
        if self._playing is None:
            return
        assert self._buffers is not None
        if self._resumed is None:
            return
        if (state := self._ours.get(_UNDER_WAY)) is not None:
            self._buffers.load(state["buffers"])
            self._playing.go_on(state["engine"])
        elif "clock_s" in self._ours:
            self._playing.go_on_from(self._ours["clock_s"])
        self._ours = {}  # it may be large

    @override
    def _clock_state(self) -> dict[str, Any]:
        if self._playing is None:
            return {}
        kept: dict[str, Any] = {"clock_s": self._playing.now()}
        if self._buffers is None:
            return kept
        with self._buffers.shown_own():
            engine, claimed = self._playing.under_way(), self._own_data.claimed()
        if engine is not None and claimed is not None:
            kept[_UNDER_WAY] = {"engine": engine, "claimed": claimed, "buffers": self._buffers.state()}
        return kept
