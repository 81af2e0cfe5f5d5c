from typing import TYPE_CHECKING

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import ClassInfo, Description, Field
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.shared_files import Prepared

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="session")
def description() -> Description:
    """A small description: what validation needs, without the 6 s that introspection takes."""
    width = Field("width", "int", default=16, minimum=1)
    batch = Field("batch_size", "int", default=32, minimum=1)
    lr = Field("lr", "float", default=0.001, minimum=0)
    rule = Field("rule", "enum", default="async", choices=["async"])
    conv = ClassInfo(
        "scalebook.training.zoo.models.ConvClassifier", "ConvClassifier", fields=[width], metrics=["val/accuracy"]
    )
    return Description(
        models=[conv],
        data=[ClassInfo("scalebook.training.zoo.data.Digits", "Digits", fields=[batch])],
        strategies=[
            ClassInfo("auto", "single", config_value="auto"),
            ClassInfo("ddp", "ddp", config_value="ddp"),
            ClassInfo("scalebook.training.lightning.AsyncPS", "AsyncPS", fields=[rule]),
        ],
        optimizers=[ClassInfo("torch.optim.Adam", "Adam", fields=[lr])],
        lr_schedulers=[],
        trainer=[Field("devices", "int", minimum=1), Field("max_epochs", "int", minimum=-1)],
        default_optimizer={"class_path": "torch.optim.Adam", "init_args": {"lr": 0.001}},
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> "MlflowClient":
    """A store of this module's own."""
    return open_store(prepared.into(Workspace(tmp_path_factory.mktemp("workspace"))))


@pytest.fixture(scope="module")
def reader(client: "MlflowClient") -> RunReader:
    return RunReader(client.tracking_uri)
