"""A workspace with all that takes long to make; and one thread for whoever forks."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from scalebook.training.base.workspace import Workspace
from tests.shared_files import Prepared
from tests.training.benches import bench as bench
from tests.training.searching import driver as driver
from tests.training.searching import searches as searches


@pytest.fixture(scope="session", autouse=True)
def _entry_points() -> Iterator[None]:
    """Which callbacks other packages bring along, every Trainer asks all packages there are: 10 ms."""
    with pytest.MonkeyPatch.context() as patch:
        if registry := sys.modules.get("lightning.fabric.utilities.registry"):
            patch.setattr(registry, "entry_points", cache(registry.entry_points))
        yield


@pytest.fixture
def workspace(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Empty, found by every command, with the store and the description in place."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return prepared.into(Workspace(tmp_path))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A pool of torch's threads does not survive the forks of DDP and AsyncPS."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
