"""Virtual workers under Lightning: what a process that plays all of them tells the engine of model, data and clock."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.ps.worker.end import JoinedEnd, PlayingEnd, Pushed
from scalebook.training.strategies.random_streams import streams_of
from scalebook.training.strategies.refused import refuse_playing
from scalebook.training.strategies.session import Session
from scalebook.training.strategies.worker_process import WorkerParts, WorkerProcess
from scalebook.training.strategies.worker_session import WorkerSession


class ArrivingPlayers(WorkerProcess):
    """From the fork to the end of its set-up.

    `python`: the state of Python's random numbers before the fork, after which Python seeds them anew; here they go on.
    """

    def __init__(self, parts: WorkerParts, playing: PlayingEnd, python: tuple[Any, ...]) -> None:
        super().__init__(parts)
        self._playing = playing
        random.setstate(python)

    @override
    def set_up(self, trainer: Any, optimizers: Sequence[Optimizer], device: torch.device) -> Session:
        refuse_playing(trainer)
        return PlayedSession(self.parts, self._playing, optimizers, device)


class PlayedSession(WorkerSession):
    """One Trainer in one process, whose batches are those of all workers in the order in which their gradients are due.

    To Lightning it is a single worker. Before each batch the loader asks whose turn it is, and the model becomes that
    worker's; `optimizer.step` is that worker's push. Validation and checkpoints look at the newest version of that
    virtual moment; they take no virtual time.
    """

    def __init__(
        self, parts: WorkerParts, playing: PlayingEnd, optimizers: Sequence[Optimizer], device: torch.device
    ) -> None:
        self._playing = playing
        super().__init__(parts, optimizers, device)

    @override
    def _join(self, model: Module, optimizers: Sequence[Optimizer]) -> JoinedEnd:
        """ValueError for what cannot be played, too."""
        seed, streams = torch.initial_seed(), streams_of(self.device)
        self._playing.play(self.data.work, self.buffers.now, self._begins, self.buffers.show_own, seed, streams)
        return super()._join(model, optimizers)

    def _begins(self, worker: int, own: list[Tensor]) -> None:
        """Before each worker's next gradient; `own`: its buffers."""
        self.following.rates()  # of the version that it computes from
        self.buffers.take(worker, self.following.updates, own)

    @override
    def _share_buffers(self) -> None:
        self.buffers.share(None)

    @override
    def _go_on_from_checkpoint(self) -> None:
        """The clock goes on where the checkpoint was, if there is one. All pull then, as real workers do: gradients
        that were under way are computed anew."""
        if self.resumed.clock_s is not None:
            self._playing.go_on_from(self.resumed.clock_s)

    @property
    @override
    def _whose_gradient(self) -> int:
        return self._playing.turn_of

    @override
    def _take_buffers(self, pushed: Pushed) -> None:
        """Nothing: whoever begins its next gradient does."""

    @override
    def clock_state(self) -> dict[str, Any]:
        return {"clock_s": self._playing.now()}
