"""The contract of a worker's end over the channel: as that over shared memory, with shards of both hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.remote_shared_state import MOST_MESSAGE_BYTES
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.settings import Settings
from tests.training.engine.net.far import DEADLINE_S, LOOPBACK, SECRET, far
from tests.training.engine.worker.end_contract import EndContract, EndOf
from tests.training.engine.worker.peers import Make, counting, serving

pytestmark = pytest.mark.long


class TestRemote(EndContract):
    """In the clear, where the workers of shards that are inline would be."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "inline"}

    @contextmanager
    def launched(self, launch: Launch, make: Make) -> Iterator[EndOf]:
        with serving(launch, make), far(launch, make) as workers:
            yield workers.worker


def test_a_message_that_is_too_long_is_refused() -> None:
    launch = Launch(1, Settings())
    with far(launch, counting) as workers:
        meetings = workers.worker(0, DEADLINE_S).meetings
        assert meetings.gather_before_training(bytes(MOST_MESSAGE_BYTES), "as long as can be") == {
            0: bytes(MOST_MESSAGE_BYTES)
        }
        with pytest.raises(ValueError, match="all_gather: a worker sent 67,108,865 bytes"):
            meetings.gather_before_training(bytes(MOST_MESSAGE_BYTES + 1), "longer")
    launch.close()


def test_what_does_not_go_between_machines_is_refused_by_name() -> None:
    launch = Launch(1, Settings(host="virtual", clock=ClockSettings(1.0)))
    listener = listening(LOOPBACK)
    with pytest.raises(
        ValueError,
        match=r"host: is virtual, so all workers are simulated by one process on one machine. Set host to inline",
    ):
        launch.post(0, "run", listener, SECRET, None)
    listener.close()
    launch.close()


@pytest.mark.thorough
class TestBesideServers(TestRemote):
    """Stand-ins that lay gradients into shared memory for servers."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "process", "shards": 2}
