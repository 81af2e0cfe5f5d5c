"""What worker 0 knows at the end of a fit, and `trainer.save_checkpoint` needs afterwards in the process that asked."""

import os
import pickle
import tempfile
import weakref
from typing import Any, Final

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities import rank_zero_warn
from typing_extensions import override

_UNPICKLED: Final = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
)  # what a callback's state may raise: a lock's, say


class StateFile:
    """A file without a name, made before the fork: optimizers' states are as large as models, and seldom asked for.

    It is gone when nobody has it any more. A copy is the same file; a pickle, to another process, has none of it.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def __deepcopy__(self, memo: dict[int, Any]) -> "StateFile":
        return self

    @override
    def __reduce__(self) -> Any:
        return StateFile, ()

    def write(self, state: dict[str, Any]) -> None:
        """By worker 0. A warning where there is no room, or something in it that no checkpoint can hold."""
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                torch.save(state, file)
        except (OSError, RuntimeError, *_UNPICKLED) as error:
            if isinstance(error, RuntimeError) and "StreamWriter" not in str(error):  # how torch says it
                raise
            os.ftruncate(self._descriptor, 0)
            cause = "It cannot be written" if isinstance(error, _UNPICKLED) else "There is no room"
            rank_zero_warn(f"The end of this fit is not kept for a checkpoint after it. {cause}: {error}.")

    def read(self) -> dict[str, Any]:
        """What was written. RuntimeError if nothing was, or it is more than plain values and tensors."""
        if not os.fstat(self._descriptor).st_size:
            raise RuntimeError(
                "the end of this fit was not kept, so that no checkpoint can be made of it now. Give the Trainer a "
                "ModelCheckpoint, or save with weights_only=True."
            )
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise RuntimeError(
                "the end of this fit has settings of an optimizer, or states of callbacks, that are objects, and those "
                "are not read. Give the Trainer a ModelCheckpoint, or save in on_train_end."
            ) from error
        return state


def all_but_weights(trainer: Trainer) -> dict[str, Any]:
    """What Lightning puts into a checkpoint beside the model's and the data's own; without calling anybody's hooks for
    a checkpoint that may never be."""
    precision = trainer.precision_plugin
    state = precision.state_dict()
    return {
        "loops": trainer._checkpoint_connector._get_loops_state_dict(),
        "callbacks": call._call_callbacks_state_dict(trainer),
        "optimizer_states": [trainer.strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers],
        "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        **({type(precision).__qualname__: state} if state else {}),
    }
