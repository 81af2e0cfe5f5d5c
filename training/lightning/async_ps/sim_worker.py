"""Simulated workers under Lightning: connects the one process that simulates them with the engine."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.async_ps.refusals import refuse_playing
from scalebook.training.lightning.async_ps.session import Session
from scalebook.training.lightning.async_ps.worker_process import WorkerParts, WorkerProcess
from scalebook.training.lightning.async_ps.worker_session import WorkerSession
from scalebook.training.lightning.random_streams import streams_of


class ArrivingSimulation(WorkerProcess):
    """The session from the fork to the end of the set-up."""

    def __init__(self, parts: WorkerParts, playing: worker_end.SimulationEnd) -> None:
        super().__init__(parts)
        self._playing = playing

    @override
    def set_up(self, trainer: Any, optimizers: Sequence[Optimizer], device: torch.device) -> Session:
        refuse_playing(trainer)
        return SimulatedSession(self.parts, self._playing, optimizers, device)


class SimulatedSession(WorkerSession):
    """One Trainer in one process, with the batches of all workers in the order in which their gradients are due.

    For Lightning it is a single worker. Before each batch the loader asks whose turn it is, and the model becomes that
    worker's; `optimizer.step` is that worker's push. Validation and checkpoints use the newest version at that virtual
    time; they take no virtual time.
    """

    def __init__(
        self,
        parts: WorkerParts,
        playing: worker_end.SimulationEnd,
        optimizers: Sequence[Optimizer],
        device: torch.device,
    ) -> None:
        self._playing = playing
        super().__init__(parts, optimizers, device)

    @override
    def _join(self, model: Module, optimizers: Sequence[Optimizer]) -> worker_end.JoinedEnd:
        """ValueError for what cannot be played, too."""
        streams = streams_of(self.device)
        self._playing.play(self.data.work, self.buffers.now, self._begins, self.buffers.show_own, streams)
        return super()._join(model, optimizers)

    def _begins(self, worker: int, buffers: list[Tensor]) -> None:
        """Called before each worker's next gradient, with its buffers."""
        self.following.rates()  # of the version that it computes from
        self.buffers.apply_policy(worker, self.following.updates, buffers)

    @override
    def _share_buffers(self) -> None:
        self.buffers.share(None)

    @override
    def _go_on_from_checkpoint(self) -> None:
        """The clock goes on where the checkpoint was, if there is one. All pull then, as real workers do: gradients
        that were under way are computed anew."""
        if self.resumed.clock_s is not None:
            self._playing.resume(self.resumed.clock_s)

    @property
    @override
    def _whose_gradient(self) -> int:
        return self._playing.current_worker

    @override
    def _take_buffers(self, pushed: worker_end.PushResult) -> None:
        """Nothing: whoever begins its next gradient does."""

    @override
    def clock_state(self) -> dict[str, Any]:
        return {"clock_s": self._playing.now()}
