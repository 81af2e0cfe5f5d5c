from typing import TYPE_CHECKING

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.shared_files import Prepared

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> "MlflowClient":
    """A store of this module's own."""
    return open_store(prepared.into(Workspace(tmp_path_factory.mktemp("workspace"))))


@pytest.fixture(scope="module")
def reader(client: "MlflowClient") -> RunReader:
    return RunReader(client.tracking_uri)
