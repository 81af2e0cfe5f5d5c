"""Fetching a data set's original files: checksum, deadline, atomic rename."""

import hashlib
import http.client
import os
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lightning.pytorch.utilities import rank_zero_info

from scalebook.training.data.errors import DataError

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file of known content: `name` in the folder, `size` in bytes, hexadecimal `sha256`, and where to get it.

    `otherwise` is what else one can do who has the file, a clause.
    """

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]
    otherwise: str = "name the folder that holds them in data.init_args.data_dir"


def cache_folder() -> Path:
    """The per-user folder for downloads: `$XDG_CACHE_HOME/scalebook`, by default `~/.cache/scalebook`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalebook"


def fetch(files: Sequence[RemoteFile], folder: Path, timeout_s: float = 30, deadline_s: float = 1800) -> None:
    """Download those of `files` that `folder` does not hold yet; what is there already is taken as it is.

    Each address of a file is tried in turn. Several processes may fetch at once: a file appears whole or not at all.
    `timeout_s` bounds each wait for the network, `deadline_s` one file.
    """
    for file in files:
        if not (folder / file.name).exists():
            rank_zero_info(f"Downloading {file.name} ({file.size / 1e6:.1f} MB) to {folder}")
            _fetch_one(file, folder, timeout_s, deadline_s)


def missing(files: Sequence[RemoteFile], folder: Path, reason: str) -> DataError:
    """The error for files that are not in `folder`: what to put where."""
    names = ", ".join(file.name for file in files if not (folder / file.name).exists())
    return DataError(f"{reason}. Put {names} in {folder}, or {files[0].otherwise}.")


def _fetch_one(file: RemoteFile, folder: Path, timeout_s: float, deadline_s: float) -> None:
    problems = []
    for url in file.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(file, url, folder, timeout_s, deadline_s)
        except (OSError, http.client.HTTPException, DataError) as error:
            problems.append(f"{url}: {error}")
        else:
            return
    raise missing([file], folder, f"Cannot download {file.name} ({'; '.join(problems)})")


def _download(file: RemoteFile, url: str, folder: Path, timeout_s: float, deadline_s: float) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".part", dir=folder)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=timeout_s) as response:
            received, sha256 = _copy(response, out, file.size, time.monotonic() + deadline_s)
        if received != file.size:
            raise DataError(f"received {received} of {file.size} bytes" if received < file.size else "too long")
        if sha256 != file.sha256:
            raise DataError(f"checksum {sha256[:12]}... is not {file.sha256[:12]}...")
        part.chmod(0o644)
        part.replace(folder / file.name)
    finally:
        part.unlink(missing_ok=True)


def _copy(source: http.client.HTTPResponse, out: IO[bytes], size: int, deadline: float) -> tuple[int, str]:
    """Bytes copied, at most one chunk more than `size`, and their SHA-256.

    `read1` returns what has arrived, so that a trickle meets the deadline too.
    """
    received, digest = 0, hashlib.sha256()
    while received <= size and (chunk := source.read1(CHUNK_BYTES)):
        if time.monotonic() > deadline:
            raise DataError(f"still not complete at its deadline, after {received} bytes")
        out.write(chunk)
        digest.update(chunk)
        received += len(chunk)
    return received, digest.hexdigest()
