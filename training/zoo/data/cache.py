"""Where data is kept that was downloaded, or is made once of a data set: arrays in one file, never a pickle."""

import os
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np


def cache_folder() -> Path:
    """The per-user folder: `$XDG_CACHE_HOME/scalebook`, by default `~/.cache/scalebook`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalebook"


MOST_BYTES: Final = 1 << 30
"""Of a file that is kept; more is not ours."""


def load_arrays(path: Path, names: Collection[str], most: int = MOST_BYTES) -> dict[str, np.ndarray] | None:
    """The arrays of these names; None where there is no such file, or one that is not ours or not whole."""
    try:
        if path.stat().st_size > most:
            return None
        with path.open("rb") as file, np.load(file) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def store_arrays(path: Path, arrays: Mapping[str, np.ndarray], instead: str) -> None:
    """Write them; a file appears whole or not at all.

    Where none can be written, a warning says what happens `instead`, a clause: "each worker reads it".
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error}): {instead}.", stacklevel=3)
        return
    try:
        with os.fdopen(handle, "wb") as out:
            np.savez(out, allow_pickle=False, **arrays)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
