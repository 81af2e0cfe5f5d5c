"""What the processes of a run tell each other beside parameters: to stop, the newest checkpoint, a plateau."""

import mmap
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from scalebook.training.ps.memory.region import STOPPING, Control

PATH_BYTES: Final = 4096  # PATH_MAX of Linux
MOST_PLATEAUS: Final = 65_536
"""Steps of plateau schedulers in one run: one or a few for each validation."""
_PATH_LENGTH: Final = 0
_PLATEAUS: Final = 1
_BEGUN: Final = 2
_HEAD_BYTES: Final = 64
_ENTRY: Final = struct.Struct("qd")


class PlateauStep(NamedTuple):
    """What worker 0 told one plateau scheduler: which of the schedulers, and the value of its metric."""

    scheduler: int
    metric: float


class SharedSignals:
    """Anonymous memory, made before the fork; 1 MiB, of which only what is written takes room. `stop` is the run's
    `control`'s, where rules see it.

    `stop` and `begun` may be set by every process; all else is written by worker 0 alone, its length last, so that
    nobody reads what is half written.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._map = mmap.mmap(-1, _HEAD_BYTES + PATH_BYTES + MOST_PLATEAUS * _ENTRY.size)
        self._head = memoryview(self._map)[:_HEAD_BYTES].cast("q")

    @property
    def stop(self) -> bool:
        """Whether every worker is to end after its present step."""
        return bool(self._control.head[STOPPING])

    def ask_to_stop(self) -> None:
        """Tell every worker to end after its present step."""
        self._control.head[STOPPING] = 1

    @property
    def begun(self) -> bool:
        """Whether all workers have come to the start of training."""
        return bool(self._head[_BEGUN])

    def begin(self) -> None:
        """Tell that all have come."""
        self._head[_BEGUN] = 1

    def note_checkpoint(self, path: str | Path) -> None:
        """Remember the newest checkpoint, so that somebody else can name it when worker 0 is dead."""
        text = os.fsencode(Path(path).absolute())[:PATH_BYTES]
        self._head[_PATH_LENGTH] = 0
        self._map[_HEAD_BYTES : _HEAD_BYTES + len(text)] = text
        self._head[_PATH_LENGTH] = len(text)

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that was noted, if it is there."""
        text = self._map[_HEAD_BYTES : _HEAD_BYTES + self._head[_PATH_LENGTH]]
        path = Path(os.fsdecode(text))
        return path if text and path.is_file() else None

    def add_plateau_step(self, step: PlateauStep) -> None:
        """By worker 0. RuntimeError when there is no room for more."""
        count = self._head[_PLATEAUS]
        if count == MOST_PLATEAUS:
            raise RuntimeError(f"lr_scheduler: more than {MOST_PLATEAUS} steps of ReduceLROnPlateau in one run")
        _ENTRY.pack_into(self._map, self._entry(count), *step)
        self._head[_PLATEAUS] = count + 1

    def plateau_steps(self, since: int) -> list[PlateauStep]:
        """All that were added, from number `since` on."""
        count = self._head[_PLATEAUS]
        return [PlateauStep(*_ENTRY.unpack_from(self._map, self._entry(i))) for i in range(since, count)]

    @staticmethod
    def _entry(index: int) -> int:
        return _HEAD_BYTES + PATH_BYTES + index * _ENTRY.size
