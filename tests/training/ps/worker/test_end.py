"""The contract of a worker's end over shared memory, with both hosts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scalebook.training.ps.launch import Launch
from tests.training.ps.towers import Towers
from tests.training.ps.worker.end_contract import EndContract, EndOf
from tests.training.ps.worker.peers import Make, serving
from tests.training.ps.worker.tables_contract import TablesContract


class TestInline(EndContract):
    """Workers that apply what they push."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make) -> Iterator[EndOf]:
        with serving(launch, make):
            yield launch.worker


class TestProcess(TestInline):
    """Servers that apply, here in threads."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "process", "shards": 2}


class TestTables(TablesContract):
    """Rows in shared memory."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make, model: Callable[[], Towers]) -> Iterator[EndOf]:
        yield launch.worker
