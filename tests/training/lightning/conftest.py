import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import torch

from scalebook.training.lightning.processes import forked, process_watch
from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
from tests.training.lightning.async_ps.small import fit, trainer

CHEAP = ("test_refused_list", "test_threads")
"""Of these files a case takes no fit."""
CALLBACKS = Path(__file__).with_name("callbacks")
"""Nor of most here."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case here is a whole fit, with this strategy or that, from this hook or that."""
    here = Path(__file__).parent
    for item in items:
        parents = item.path.parents
        if here in parents and CALLBACKS not in parents and item.path.stem not in CHEAP:
            item.add_marker(pytest.mark.sampled)


@pytest.fixture(scope="session", autouse=True)
def _first_fit(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What Python learns about Lightning's classes in a first fit (which are subclasses of which) every process that is
    forked would otherwise learn again, and write into pages of its own: a quarter of a worker's page faults."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable()
    prepare_for_forks()  # before a Trainer counts GPUs: a CUDA build would begin CUDA, and Lightning's own DDP not fork
    fit(trainer(tmp_path_factory.mktemp("first-fit"), "auto", max_epochs=1))
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """What this process logs as a warning or worse."""
    text = StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger().addHandler(handler)
    yield text
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def machines_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where machines have their key; the first makes it."""
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Every test here may fork."""


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits for one that has died does not hear a SIGTERM, so each such end takes the whole of it."""
    for module in (forked, process_watch):
        monkeypatch.setattr(module, "GRACE_S", 1.0)
