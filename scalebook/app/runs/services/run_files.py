"""What a run has left to be taken along: its checkpoints, its artifacts in the store, its log and config."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from scalebook.app.runs.services.artifacts import leads_out
from scalebook.training.files.reading import written
from scalebook.training.jobs.folder import JobFolder
from scalebook.training.tracking.reading import RunReader

if TYPE_CHECKING:
    from mlflow.entities import FileInfo

MOST = 200
MOST_BYTES = 2**31
"""A larger file would not go through the server's memory; its path is told instead."""
LONGEST_LOG = 2**24
"""Bytes of a log that are searched, from its end."""


@dataclass(frozen=True)
class RunFile:
    """One file. `read` gives its bytes when it is asked for."""

    name: str
    kind: str
    size: int
    read: Callable[[], bytes]
    path: Path | None = None
    """Where it lies on this machine, if it is known."""


def files(reader: RunReader, run_id: str, job: JobFolder | None) -> list[RunFile]:
    """Checkpoints, the newest first, then artifacts by name; MOST of each at most."""
    listed = _checkpoints(job) if job else []
    inside = [] if leads_out(reader, run_id) else _artifacts(reader, run_id, "")
    for info in islice(inside, MOST):
        read = partial(_download, reader, run_id, info.path)
        listed.append(RunFile(info.path, "artifact", info.file_size or 0, read))
    return listed


def _checkpoints(job: JobFolder) -> list[RunFile]:
    paths = [path for path in job.path.rglob("*.ckpt") if path.is_file() and not path.is_symlink()]
    facts = sorted(((path.stat(), path) for path in paths), key=lambda pair: -pair[0].st_mtime)
    return [RunFile(path.name, "checkpoint", fact.st_size, path.read_bytes, path) for fact, path in facts[:MOST]]


def _artifacts(reader: RunReader, run_id: str, folder: str) -> "Iterator[FileInfo]":
    for info in reader.client.list_artifacts(run_id, folder or None):
        if info.is_dir:
            yield from _artifacts(reader, run_id, info.path)
        else:
            yield info


def _download(reader: RunReader, run_id: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="scalebook-") as folder:
        return Path(reader.client.download_artifacts(run_id, path, folder)).read_bytes()


def found_in(log: Path, text: str) -> tuple[list[tuple[int, str]], int]:
    """The lines of a log that contain `text`, in any case, with their numbers; and how many lines it has.

    Of a log beyond LONGEST_LOG bytes the end is searched, and lines are counted from there.
    """
    lines = written(log, LONGEST_LOG).decode("utf-8", "replace").splitlines()
    wanted = text.casefold()
    return [(i, line) for i, line in enumerate(lines, 1) if wanted in line.casefold()], len(lines)
