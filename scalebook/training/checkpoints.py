"""Checkpoints as plain tensors, numbers and texts: what a file holds beyond that is refused, never run."""

import pickle
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from lightning.pytorch import LightningModule
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

    ConfigError for a file that cannot be read so. `said`: the model's arguments in the config. Of those that name a
    class there, the hyper-parameters in a file are what the config says, not the object that was made of it.
    """

    def __init__(self, said: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__()
        self.said = {name: value for name, value in said.items() if _names_class(value)}

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        kept = checkpoint.get(LightningModule.CHECKPOINT_HYPER_PARAMS_KEY)
        if isinstance(kept, Mapping) and self.said:
            plain = {name: self.said.get(name, value) for name, value in kept.items()}
            checkpoint = {**checkpoint, LightningModule.CHECKPOINT_HYPER_PARAMS_KEY: plain}
        super().save_checkpoint(checkpoint, path, storage_options)

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


def _names_class(value: Any) -> bool:
    """Whether there is a `class_path` in it, at whatever depth."""
    if isinstance(value, Mapping):
        return "class_path" in value or any(map(_names_class, value.values()))
    return isinstance(value, list | tuple) and any(map(_names_class, value))
