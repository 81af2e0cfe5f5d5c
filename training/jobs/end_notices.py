"""What has ended, in order: `.scalebook/endings.jsonl`, written by the supervisor, read by whatever notifies people.

It lists runs that had started, and searches, but not the trials of searches. A long file is replaced by a new one.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base import Workspace, duration
from scalebook.training.base.files import BrokenRecord, records, safe_reading
from scalebook.training.jobs.job_folder import JobFolder

LARGEST: Final = 2**20


@dataclass(frozen=True)
class Ending:
    """One run or search that has ended."""

    kind: Literal["run", "search"]
    id: str
    name: str
    state: str
    """finished, failed or stopped."""
    at: float
    """Unix time, s."""
    seconds: float | None = None
    notebook: str | None = None
    cause: str = ""
    failed: int = 0
    """How many trials of a finished search failed."""

    @property
    def text(self) -> str:
        """`Scalebook: pixelcnn seed 1 finished after 2 min.`"""
        took = "" if self.seconds is None else f" after {duration(self.seconds)}"
        if self.failed and self.state == "finished":
            return f"Scalebook: {self.name} {self.state}{took}; {self.failed:,} of its trials failed."
        cause = f": {self.cause.rstrip('.')}" if self.cause and self.state == "failed" else ""
        return f"Scalebook: {self.name} {self.state}{took}{cause}."


def of_job(job: JobFolder) -> Ending | None:
    """The job's ending; None for a trial, and for a job that has not started or not ended."""
    request, result, started = job.request(), job.result(), job.started()
    if request.trial is not None or result is None or started is None:
        return None
    seconds = max(0.0, result.ended - started.started)
    return Ending("run", job.id, request.title, result.status, result.ended, seconds, request.notebook, result.cause)


def file_of(workspace: Workspace) -> Path:
    return workspace.hidden / "endings.jsonl"


def add(workspace: Workspace, ending: Ending) -> None:
    path = file_of(workspace)
    if path.exists() and path.stat().st_size > LARGEST:
        path.unlink()
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(ending)) + "\n")


def since(workspace: Workspace, offset: int | None) -> tuple[list[Ending], int]:
    """The endings after `offset`, and the next offset. With None: no endings, and the file's present end."""
    path = file_of(workspace)
    try:
        size = path.stat().st_size
        if offset is None or size == offset:
            return [], size
        with safe_reading.opened(path) as file:
            file.seek(offset if offset < size else 0)  # a shorter one was begun anew
            content = file.read(2 * LARGEST)
            end = file.tell()
    except OSError:
        return [], 0
    complete = content.rfind(b"\n") + 1
    endings = []
    for line in content[:complete].splitlines():
        try:
            endings.append(records.parse(path, line, Ending))
        except BrokenRecord:
            continue
    return endings, end - (len(content) - complete)
