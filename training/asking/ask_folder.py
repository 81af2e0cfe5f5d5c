"""The folder of a question that is being answered, `.scalebook/asks/NOTEBOOK--ANSWER/`: progress, log, process.

What is known is not here: it follows from the notebook's cells and their runs, so that whoever deletes the folder loses
nothing but the time that was spent.
"""

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from scalebook.training.base import ConfigError, Problem, ProcessId, Workspace, processes
from scalebook.training.base.files import RecordFolder, records

STARTING: Final = "starting"
PROCESS: Final = "scalebook.training.asking.ask_process"


@dataclass(frozen=True)
class AskProgress:
    """`progress.json`, whenever something changes. Times in s."""

    time: float
    spent_s: float
    words: str
    """What is done now; "" at the end."""
    left_s: float | None = None
    """About how long it still takes to the answer."""
    left_out: list[str] = field(default_factory=list)
    """What the budget leaves out, in sentences."""
    plan: str = ""
    """What is done in all, and how long it takes."""


@dataclass(frozen=True)
class AskFailure:
    """`failure.json`: why there is no answer, as a `Problem` has it."""

    key: str
    message: str
    fix: str


class AskFolder(RecordFolder):
    """The folder of one question. Any process may read it; one at a time works on it."""

    FILES = MappingProxyType({AskProgress: "progress.json", AskFailure: "failure.json", ProcessId: "process.json"})
    DURABLE = (AskProgress,)

    @classmethod
    def of(cls, workspace: Workspace, notebook: str, answer: str) -> "AskFolder":
        """That of a notebook's answer; `notebook` is the file's name."""
        return cls(workspace.hidden / "asks" / f"{Path(notebook).stem}--{answer}")

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.path.parent.parent.parent)

    def progress(self) -> AskProgress | None:
        return records.peek(self.path / "progress.json", AskProgress)

    def failure(self) -> AskFailure | None:
        """Why the last process gave no answer; None if it gave one, works, or was stopped."""
        return None if self.works() else records.peek(self.path / "failure.json", AskFailure)

    def works(self) -> bool:
        """Whether a process works on it: it writes the log, whatever a record that was found here says."""
        process = records.peek(self.path / "process.json", ProcessId)
        return process is not None and process.writes_to([self.log])

    def start(self, notebook: Path) -> None:
        """Start a process for the question, unless one works on it."""
        if self.works():
            return
        self._prepare()
        before = self.progress() or AskProgress(0.0, 0.0, "")
        self.write(replace(before, time=time.time(), words=STARTING, left_s=None))
        with self.log.open("wb") as log:
            process = processes.start_detached(log, PROCESS, str(notebook.resolve()), self.answer)
        self.write(ProcessId.of(process.pid))

    def stop(self) -> None:
        """Ask the process and what it runs to end; without effect if none works."""
        process = records.peek(self.path / "process.json", ProcessId)
        if process is not None and self.works():
            process.send(signal.SIGTERM)

    @property
    def answer(self) -> str:
        """The name of the answer's cell."""
        return self.path.name.rpartition("--")[2]

    def _prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, problem: Problem) -> None:
        self.write(AskFailure(problem.key, problem.message, problem.fix))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work on it, in this process; ConfigError where another one does."""
        self._prepare()
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                what = "is being answered by another process"
                raise ConfigError(self.path.name, what, "Wait for that process, or stop it in the browser.") from error
            with self.log.open("ab"):  # by which others see that this process works on it
                self.write(ProcessId.of())
                yield
        finally:
            os.close(handle)

    def move(self, notebook: str) -> None:
        """Follow the notebook to its new file name, if there is anything of it."""
        if self.path.is_dir():
            self.path.rename(self.of(self.workspace, notebook, self.answer).path)

    def forget(self) -> None:
        """Remove the folder, if nobody works on it: the time spent counts from zero."""
        if not self.works():
            shutil.rmtree(self.path, ignore_errors=True)
