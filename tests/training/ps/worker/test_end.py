"""The contract of a worker's end over shared memory, with both hosts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Parameter

from scalebook.training.ps.launch import Launch
from tests.training.ps.worker.end_contract import DEADLINE_S, EndContract, EndOf, Make


class TestInline(EndContract):
    """Workers that apply what they push."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make) -> Iterator[EndOf]:
        def serve(server: int) -> None:
            end = launch.server(server, DEADLINE_S)
            end.serve([make([Parameter(torch.zeros(3)), Parameter(torch.zeros(2, 2))])])

        servers = [threading.Thread(target=serve, args=(number,)) for number in range(launch.servers)]
        for server in servers:
            server.start()
        yield launch.worker
        for server in servers:
            server.join(2 * DEADLINE_S)
            assert not server.is_alive()


class TestProcess(TestInline):
    """Servers that apply, here in threads."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "process", "shards": 2}
