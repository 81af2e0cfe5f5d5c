"""Why runs fail: the classes of failure, the exceptions that lead to them, and a remedy for each.

Torch's exceptions are recognised by name, so that the app can use this module without loading torch.
"""

import math
import re
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.machine_errors import is_full


class FailureClass(StrEnum):
    OUT_OF_MEMORY = "out of memory"
    DIVERGED = "diverged"
    DATA = "data"
    CONFIGURATION = "configuration"
    WORKER_LOST = "worker lost"
    SERVER_LOST = "server lost"
    KILLED = "killed"
    TIMED_OUT = "timed out"
    DISK_FULL = "disk full"
    BROKEN_RECORD = "broken record"
    MODEL_CODE = "error in the model's code"
    DATA_CODE = "error in the data's code"
    UNKNOWN = "unknown"


ADVICE: dict[FailureClass, str] = {
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch_size or model, or fewer workers on one device.",
    FailureClass.DIVERGED: "Lower the learning rate, or clip the gradient.",
    FailureClass.DATA: "Check the data set's files and arguments; the log has the full traceback.",
    FailureClass.CONFIGURATION: "Fix the config and run it again.",
    FailureClass.WORKER_LOST: "Find the cause in the log, then run again.",
    FailureClass.SERVER_LOST: "Find the cause in the log, then run again.",
    FailureClass.KILLED: "Something outside Scalebook killed the process, often because memory ran out. Run it again.",
    FailureClass.TIMED_OUT: "The log shows what the run was waiting for. If it only needs time, raise the deadline.",
    FailureClass.DISK_FULL: "Free disk space, then run again.",
    FailureClass.BROKEN_RECORD: "Restore the file from a copy, or run the experiment again.",
    FailureClass.MODEL_CODE: "Fix the model's code, then run again.",
    FailureClass.DATA_CODE: "Fix the data's code, then run again.",
    FailureClass.UNKNOWN: "See the end of the log for the full traceback.",
}
OR_RESUME = "Or resume from the last checkpoint."
RESUMABLE = (FailureClass.WORKER_LOST, FailureClass.SERVER_LOST, FailureClass.KILLED, FailureClass.DISK_FULL)
"""Failures after which it helps to go on from a checkpoint, if there is one."""
FEWER_WORKERS = "Or use fewer asynchronous workers: stale gradients need a smaller learning rate."


@dataclass(frozen=True)
class Failure:
    """Why a run failed. `cause` is one line; it names the process, if that is known."""

    failure_class: FailureClass
    cause: str
    advice: str
    worker: int | None = None
    frame: str = ""
    """The line of the user's own code that raised it, as in a traceback."""


class Diverged(RuntimeError):
    """The loss became NaN or infinite. `updates`: those that made the parameters which gave it. `stale`: gradients of
    several workers were applied as they came."""

    def __init__(self, metric: str, value: float, updates: int, stale: bool = False) -> None:
        self.metric, self.value, self.updates, self.stale = metric, value, updates, stale
        super().__init__(self.words())

    def words(self, all_updates: int = 0) -> str:
        """What happened, in a run that has made `all_updates` until it ended."""
        became = "NaN" if math.isnan(self.value) else "infinite"
        when, count = f"{self.updates:,}", max(self.updates, all_updates)
        when = f"{when} of {count:,}" if count > self.updates else when
        return f"{self.metric} became {became} after {when} update{'' if count == 1 else 's'}"

    def __reduce__(self) -> tuple[type["Diverged"], tuple[str, float, int, bool]]:
        return type(self), (self.metric, self.value, self.updates, self.stale)


class ProcessLost(RuntimeError):
    """A process of the run died; `cause` names its pid and the signal or exit code."""

    role: ClassVar[str]

    def __init__(self, number: int, cause: str) -> None:
        super().__init__(f"{self.role} {number} died: {cause}")
        self.number, self.cause = number, cause

    def __reduce__(self) -> tuple[type["ProcessLost"], tuple[int, str]]:
        return type(self), (self.number, self.cause)


class WorkerLost(ProcessLost):
    """A worker died that the run cannot go on without."""

    role = "worker"


class ServerLost(ProcessLost):
    """A server process died and could not be restarted."""

    role = "server"


class NodeLost(RuntimeError):
    """Another node has ended the run, or does not answer any more; the message says which and why."""


class TimedOut(RuntimeError):
    """A wait inside a run reached its deadline; the message says who waited for what."""


OURS = (Diverged, ProcessLost, NodeLost, TimedOut, ConfigError)

MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "unable to allocate", "bad_alloc")
"""Messages of torch's allocators for CPU and GPU, the operating system, NumPy and C++, in lower case."""
GPU_MEMORY = re.compile(
    r"\bcu\w+_alloc_failed\b|\bcudnn_status_\w+_allocation_failed\b|\bcuda_?error_?(memory_?allocation|out_of_memory)\b",
    re.IGNORECASE,
)
"""How cuBLAS, cuDNN, cuSPARSE, cuSOLVER, cuFFT, CUDA's runtime and its driver report a lack of GPU or host memory."""
ONEDNN_MEMORY = re.compile(r"could not create a (primitive(?! descriptor)|memory object)", re.IGNORECASE)
"""What oneDNN reports when it lacks scratch memory for a convolution. (A descriptor that it cannot create is an unknown
operation.)"""

INTERVAL_MESSAGE = " `val_check_interval` ("
"""How Lightning's ValueError begins for a validation interval longer than an epoch."""

BY_POSITION = "can be passed to its parent's `shuffle=...`"
"""In what Lightning raises where it has to replace the sampler of `DataLoader(dataset, 32, True)`."""
BY_NAME = (
    "Under DDP, Lightning replaces a DataLoader's `shuffle` and `sampler` arguments, but only if they are passed by "
    "name. Pass both by name, as in shuffle=True."
)

BYTES = re.compile(r"\b(\d[\d,]{8,}) bytes\b")
DATA_MODULES = ("/training/zoo/data/", "/torch/utils/data/")


def classify(error: BaseException) -> Failure:
    """The failure that an exception means, found along its chain of causes."""
    links = chain(error)
    if (full := next(filter(is_full, links), None)) is not None:  # whatever else came of it
        return Failure(FailureClass.DISK_FULL, _one_line(full), ADVICE[FailureClass.DISK_FULL])
    for link in links:
        failure_class = _class_of(link)
        if failure_class is not FailureClass.UNKNOWN:
            worker = link.number if isinstance(link, WorkerLost) else None
            advice = BY_NAME if BY_POSITION in str(link) else ADVICE[failure_class]
            more = f" {FEWER_WORKERS}" if isinstance(link, Diverged) and link.stale else ""
            return Failure(failure_class, _one_line(link), advice + more, worker)
    return Failure(FailureClass.UNKNOWN, _one_line(error), ADVICE[FailureClass.UNKNOWN])


def _class_of(error: BaseException) -> FailureClass:
    text = str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return FailureClass.OUT_OF_MEMORY
    if wants_memory(text):
        return FailureClass.OUT_OF_MEMORY
    if isinstance(error, Diverged):
        return FailureClass.DIVERGED
    if isinstance(error, WorkerLost | NodeLost):
        return FailureClass.WORKER_LOST
    if isinstance(error, ServerLost):
        return FailureClass.SERVER_LOST
    if isinstance(error, TimedOut | TimeoutError):
        return FailureClass.TIMED_OUT
    if isinstance(error, ConfigError):
        return FailureClass.CONFIGURATION
    if type(error).__name__ == "MisconfigurationException" or text.startswith(INTERVAL_MESSAGE):
        return FailureClass.CONFIGURATION
    frames = traceback.extract_tb(error.__traceback__)
    if frames and any(part in Path(frames[-1].filename).as_posix() for part in DATA_MODULES):
        return FailureClass.DATA
    return FailureClass.UNKNOWN


def wants_memory(text: str) -> bool:
    """Whether an error message, or the end of a log, reports a lack of memory."""
    named = any(words in text.lower() for words in MEMORY_WORDS)
    return named or any(kind.search(text) is not None for kind in (ONEDNN_MEMORY, GPU_MEMORY))


def chain(error: BaseException | None) -> list[BaseException]:
    """The exception, and those that it follows from."""
    links: list[BaseException] = []
    while error is not None and error not in links:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def _one_line(error: BaseException) -> str:
    """Its message, after the name of its class, unless that is ours: `FailureClass` says the same."""
    first = BYTES.sub(_readable, (str(error).strip() or "no message").splitlines()[0])
    return first if isinstance(error, OURS) else f"{type(error).__name__}: {first}"


def _readable(match: re.Match[str]) -> str:
    """`4398046511104 bytes`, as allocators say it, as `4,400 GB`."""
    size = int(match[1].replace(",", "")) / 1e9
    return f"{float(f'{size:.3g}'):,g} GB"
