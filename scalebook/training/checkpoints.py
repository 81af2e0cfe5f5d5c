"""Checkpoints as plain tensors, numbers and texts: what a file holds beyond that is refused, never run."""

import pickle
import re
from collections.abc import Callable
from typing import Any, Final

from lightning.pytorch.plugins.io import TorchCheckpointIO
from typing_extensions import override

from scalebook.training.errors import ConfigError

REMEDY: Final = (
    "A model's own hyper-parameters are kept in it: leave out those that are objects, with "
    "`self.save_hyperparameters(ignore=[...])`, and train anew. If you trust the file, read it once in a script of "
    "your own with `torch.load(..., weights_only=False)` and save what you need."
)


class PlainCheckpoints(TorchCheckpointIO):
    """Lightning's reading and writing, but always with `weights_only=True`, whoever asks.

    ConfigError for a file that cannot be read so.
    """

    @override
    def load_checkpoint(
        self,
        path: Any,
        map_location: Callable[..., Any] | None = lambda storage, _: storage,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        try:
            read: dict[str, Any] = super().load_checkpoint(path, map_location, weights_only=True)
        except pickle.UnpicklingError as error:
            match = re.search(r"GLOBAL (\S+)", str(error))
            what = f"names {match.group(1)}, which is code" if match else "is not one that torch can read safely"
            raise ConfigError(
                "ckpt_path", f"{path} holds more than tensors, numbers and texts: it {what}", REMEDY
            ) from None
        return read
