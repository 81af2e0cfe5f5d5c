from typing import TYPE_CHECKING

import pytest

from tests.prepared import Prepared
from training.tracking.reading import RunReader
from training.tracking.starting import open_store
from training.workspace import Workspace

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> "MlflowClient":
    """A store of this module's own."""
    return open_store(prepared.into(Workspace(tmp_path_factory.mktemp("workspace"))))


@pytest.fixture(scope="module")
def reader(client: "MlflowClient") -> RunReader:
    return RunReader(client.tracking_uri)
