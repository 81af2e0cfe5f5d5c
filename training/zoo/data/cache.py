"""The user's cache of what was downloaded, or computed once from a data set: arrays in one file, never a pickle."""

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
"""Largest cache file that is read; a larger one is not ours."""


def load_arrays(path: Path, names: Collection[str], most: int = MOST_BYTES) -> dict[str, np.ndarray] | None:
    """The cached arrays of these names; None if the file is missing, damaged or not ours."""
    try:
        if path.stat().st_size > most:
            return None
        with path.open("rb") as file, np.load(file) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def store_arrays(path: Path, arrays: Mapping[str, np.ndarray], instead: str) -> None:
    """Write the arrays; the file appears whole or not at all.

    If it cannot be written, a warning says what happens `instead`, a clause: "each worker reads it".
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error}), so {instead}.", stacklevel=3)
        return
    try:
        with os.fdopen(handle, "wb") as out:
            np.savez(out, allow_pickle=False, **arrays)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
