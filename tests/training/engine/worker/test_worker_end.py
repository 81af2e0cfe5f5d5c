"""The contract of a worker's end over shared memory, with both hosts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.worker.worker_end import JoinedEnd, WorkerEnd, WrittenError
from tests.training.engine.towers import Towers, gradient
from tests.training.engine.worker.end_contract import EndContract, EndOf
from tests.training.engine.worker.peers import Make, serving
from tests.training.engine.worker.tables_contract import TablesContract, ends, trains


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

    def test_who_writes_into_a_table_is_refused_and_the_table_named(self) -> None:
        def writes(end: WorkerEnd, joined: JoinedEnd, model: Towers) -> None:
            joined.start()
            joined.begin()
            gradient(model, 0)
            before = model.words.weight[3].detach().clone()
            with torch.no_grad():
                model.words.weight[3] = 7.0
            with pytest.raises(WrittenError, match=r"wrote into words\.weight"):
                joined.clients[0].push()
            with torch.no_grad():
                model.words.weight[3] = before
            ends(joined, model)

        self.trained([trains([]), writes])
