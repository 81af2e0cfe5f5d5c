"""The contract of a worker's end over the channel: as that over shared memory, with shards of both hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scalebook.training.ps.launch import Launch
from tests.training.ps.channel.far import far
from tests.training.ps.worker.end_contract import EndContract, EndOf, Make, serving

pytestmark = pytest.mark.long


class TestRemote(EndContract):
    """In the clear, where the workers of shards that are inline would be."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make) -> Iterator[EndOf]:
        with far(launch, make) as workers:
            yield workers.worker


@pytest.mark.thorough
class TestBesideServers(TestRemote):
    """Stand-ins that lay gradients into shared memory for servers."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "process", "shards": 2}

    @contextmanager
    def launched(self, launch: Launch, make: Make) -> Iterator[EndOf]:
        with serving(launch, make), far(launch, make) as workers:
            yield workers.worker
