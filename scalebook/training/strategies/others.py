"""What a run on several machines adds to the watch over its processes on one of them."""

from collections.abc import Sequence
from typing import Final

LOOK_S: Final = 1.0


class Others:
    """The other machines of a run, for the monitor of one; here: there are none."""

    def begin(self) -> None:
        """Look for them, when all processes here are forked."""

    def is_there(self, worker: int) -> bool:
        """Whether a process is to be started for this worker at the beginning."""
        return True

    def joining(self) -> Sequence[int]:
        """Workers for which one is to be started now, after `check`."""
        return ()

    def look_s(self) -> float:
        """Seconds until the next `check` at most."""
        return LOOK_S

    def check(self, stopping: bool) -> None:
        """Raise what ends the run here because of them. Each `look_s`; `stopping`: a SIGTERM has come here."""

    def explained(self, error: BaseException) -> BaseException:
        """Tell them that the run ends here. The error to end with: theirs, where that is the cause."""
        return error

    def end(self) -> None:
        """Leave, when the processes here have ended."""


NONE: Final = Others()
