"""Finds in a printed traceback where the user's own code raised an error.

It reads the text, not the exception: a worker's traceback reaches the run's main process as text.
"""

import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import FailureClass, Workspace, code_changes, failures, source_files

FRAME: Final = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n(?P<code> {4,}[^\n]*)?', re.M
)
ERROR: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<words>[^\n]*))?$", re.M)


@dataclass(frozen=True)
class OwnError:
    """The innermost frame of the user's own code, and the exception that it led to."""

    file: Path
    line: int
    function: str
    code: str
    """The line itself; "" if it can no longer be read."""
    error: str
    """The name of the exception's class, without its module."""
    words: str

    @property
    def cause(self) -> str:
        """`ValueError at bad.py:17: no such shape`."""
        location = f"{self.error} at {self.file.name}:{self.line}"
        return f"{location}: {self.words}" if self.words else location

    @property
    def frame(self) -> str:
        """The place of the error, as in a traceback."""
        return f'File "{self.file}", line {self.line}, in {self.function}\n    {self.code}'.rstrip()


def own_error(text: str, is_own: Callable[[Path], bool]) -> OwnError | None:
    """The last frame in the printed traceback whose file `is_own`; None if there is none."""
    frame = next((match for match in reversed(list(FRAME.finditer(text))) if is_own(Path(match["file"]))), None)
    error = ERROR.search(text, frame.end()) if frame else None
    if frame is None or error is None:
        return None
    name = error["name"].rpartition(".")[2]
    line, code = int(frame["line"]), (frame["code"] or "").strip()
    return OwnError(Path(frame["file"]), line, frame["function"], code, name, error["words"] or "")


def own_files(workspace: Workspace) -> Callable[[Path], bool]:
    """A test whether a file is the user's own: in the modules that `scalebook.toml` names, or elsewhere in the
    workspace."""
    named = set(source_files(workspace))

    def own(path: Path) -> bool:
        if path in named:
            return True
        beside = path.is_relative_to(workspace.root) and not path.is_relative_to(workspace.hidden)
        return beside and not any(path.resolve().is_relative_to(folder) for folder in code_changes.INSTALLED)

    return own


def blamed(
    failure: failures.Failure, error: BaseException, workspace: Workspace, model: object, data: object
) -> failures.Failure:
    """The failure with its place in the user's own code, if the exception came from there and its class says nothing
    more specific. `model`, `data`: as a config names their classes."""
    if failure.failure_class not in (FailureClass.UNKNOWN, FailureClass.DATA):
        return failure
    error_ = own_error("".join(traceback.format_exception(error)), own_files(workspace))
    if error_ is None:
        return failure
    of_data = _source(data) == error_.file != _source(model)
    failure_class = FailureClass.DATA_CODE if of_data else FailureClass.MODEL_CODE
    return failures.Failure(failure_class, error_.cause, failures.ADVICE[failure_class], failure.worker, error_.frame)


def _source(reference: Any) -> Path | None:
    """The file of the class that a config names; None where it is not loaded."""
    path = reference.get("class_path") if isinstance(reference, Mapping) else reference
    module = sys.modules.get(str(path).rpartition(".")[0])
    file = getattr(module, "__file__", None)
    return Path(file) if file else None
