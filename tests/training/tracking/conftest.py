from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from training.tracking.reading import RunReader
from training.tracking.starting import open_store
from training.workspace import Workspace

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> "MlflowClient":
    """A store of this module's own (2.5 s)."""
    root: Path = tmp_path_factory.mktemp("workspace")
    return open_store(Workspace(root).create())


@pytest.fixture(scope="module")
def reader(client: "MlflowClient") -> RunReader:
    return RunReader(client.tracking_uri)
