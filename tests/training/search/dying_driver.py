"""`python -m tests.training.search.dying_driver FOLDER`: a driver that is killed once, when a trial's first job is made
and the study has not been told of it."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scalebook.training.search.driver.driver_loop import drive
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.study import Study

DIED: Final = "died"
"""File in the search's folder."""
_note = Study.update_trial


def dies(study: Study, number: int, *, runs: Mapping[int, str] | None = None, **more: Any) -> None:
    mark = Path(sys.argv[1]) / DIED
    if runs and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    _note(study, number, runs=runs, **more)


if __name__ == "__main__":
    Study.update_trial = dies  # type: ignore[method-assign, assignment]
    sys.exit(drive(SearchFolder(Path(sys.argv[1]))))
