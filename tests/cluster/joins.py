"""Who takes part in a run of the engine over machines, as its processes count it."""

from collections.abc import Collection
from mmap import mmap
from typing import Any, Literal

from typing_extensions import override

from scalebook.training.engine.launch import Launch
from scalebook.training.lightning.processes.peer_monitor import PeerMonitor


class Numbers:
    """One for each worker, in memory that all processes have; each has one writer at a time."""

    def __init__(self, count: int, kind: Literal["q", "d"]) -> None:
        self._kept: Any = memoryview(mmap(-1, 8 * count)).cast(kind)

    def __getitem__(self, number: int) -> Any:
        return self._kept[number]

    def __setitem__(self, number: int, value: float) -> None:
        self._kept[number] = value

    def all(self) -> list[Any]:
        return list(self._kept)


class Joins(PeerMonitor):
    """Of a run whose workers come and go: those in `absent` are not there at first, and who knocks is taken in."""

    def __init__(self, launch: Launch, knocks: Numbers, absent: Collection[int]) -> None:
        self._launch, self._knocks, self._absent = launch, knocks, absent
        for worker in absent:
            launch.mark_dead(worker)

    @override
    def is_there(self, worker: int) -> bool:
        return worker not in self._absent

    @override
    def joining(self) -> list[int]:
        gone = set(range(len(self._knocks.all()))) - set(self._launch.living())
        come = [worker for worker in gone if self._knocks[worker] and self._launch.take_in(worker)]
        for worker in come:
            self._knocks[worker] = 0
        return come
