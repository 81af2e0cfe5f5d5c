"""Runs whose workers come over the channel, and seconds that become tenths."""

from collections.abc import Callable, Iterator

import pytest

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net import acceptor, channel
from scalebook.training.engine.rules.settings import Settings
from tests.training.engine.net.far import Far
from tests.training.engine.worker.peers import counting


@pytest.fixture
def run() -> Iterator[Callable[..., Far]]:
    made: list[Far] = []

    def make(workers: int, **settings: object) -> Far:
        made.append(Far(Launch(workers, Settings(**settings)), counting))  # type: ignore[arg-type]  # of any argument
        return made[-1]

    yield make
    for far in made:
        far.close()
        far.launch.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become tenths."""
    monkeypatch.setattr(acceptor, "DEAD_S", 1.5)
    monkeypatch.setattr(channel, "DEAD_S", 1.5)
    monkeypatch.setattr(channel, "PULSE_S", 0.1)
