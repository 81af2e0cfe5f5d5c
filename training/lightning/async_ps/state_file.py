"""The state of worker 0 at the end of a fit, for a later `trainer.save_checkpoint` in the process that called the
fit."""

import os
import pickle
import tempfile
import weakref
from typing import Any, Final

import torch
from typing_extensions import override

from scalebook.training.lightning.package import Trainer, call, rank_zero_warn

_UNPICKLED: Final = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
)  # what a callback's state may raise: a lock's, say


class StateFile:
    """An anonymous file, created before the fork: optimizers' states are as large as models, and rarely needed.

    It vanishes with its last reference. After `close` it is mapped into memory instead of open, since a Trainer, which
    is in reference cycles, may be collected late. A copy shares the file; a pickle is empty.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._descriptor: int | None = os.dup(file.fileno())
        self._mapped = torch.empty(0, dtype=torch.uint8)
        self._closing = weakref.finalize(self, os.close, self._descriptor)

    def close(self) -> None:
        """Called in the process that called the fit, when no process writes any more."""
        if self._descriptor is not None:
            if size := os.fstat(self._descriptor).st_size:
                self._mapped = torch.from_file(f"/proc/self/fd/{self._descriptor}", size=size, dtype=torch.uint8)
            self._closing()
            self._descriptor = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "StateFile":
        return self

    @override
    def __reduce__(self) -> Any:
        return StateFile, ()

    def write(self, state: dict[str, Any]) -> None:
        """Write the state, in worker 0. Warns if the disk is full, or the state has something that no checkpoint can
        hold."""
        assert self._descriptor is not None
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                torch.save(state, file)
        except (OSError, RuntimeError, *_UNPICKLED) as error:
            if isinstance(error, RuntimeError) and "StreamWriter" not in str(error):  # how torch says it
                raise
            os.ftruncate(self._descriptor, 0)
            cause = "It cannot be written" if isinstance(error, _UNPICKLED) else "The disk is full"
            rank_zero_warn(
                f"The state at the end of this fit was not saved, so no checkpoint can be written after it. "
                f"{cause}: {error}."
            )

    def read(self) -> dict[str, Any]:
        """The written state, after `close`. RuntimeError if nothing was written, or it has more than plain values and
        tensors."""
        if not self._mapped.numel():
            raise RuntimeError(
                "the state at the end of this fit was not saved, so no checkpoint can be written now. Give the Trainer "
                "a ModelCheckpoint, or save with weights_only=True."
            )
        with tempfile.TemporaryFile() as file:
            self._mapped.numpy().tofile(file)
            file.seek(0)
            try:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            except pickle.UnpicklingError as error:
                raise RuntimeError(
                    "the state at the end of this fit cannot be loaded, because optimizer settings or callback states "
                    "contain objects. Give the Trainer a ModelCheckpoint, or save in on_train_end."
                ) from error
        return state


def all_but_weights(trainer: Trainer) -> dict[str, Any]:
    """What Lightning puts into a checkpoint besides the states of model and data; without calling hooks, since the
    checkpoint may never be written."""
    precision = trainer.precision_plugin
    state = precision.state_dict()
    return {
        "loops": trainer._checkpoint_connector._get_loops_state_dict(),
        "callbacks": call._call_callbacks_state_dict(trainer),
        "optimizer_states": [trainer.strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers],
        "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        **({type(precision).__qualname__: state} if state else {}),
    }
