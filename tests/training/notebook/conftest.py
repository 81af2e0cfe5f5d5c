import pytest

from training.spec.description import ClassInfo, Description, Field


@pytest.fixture(scope="session")
def description() -> Description:
    """A small description: what validation needs, without the 6 s that introspection takes."""
    width = Field("width", "int", default=16, minimum=1)
    batch = Field("batch_size", "int", default=32, minimum=1)
    lr = Field("lr", "float", default=0.001, minimum=0)
    rule = Field("rule", "enum", default="async", choices=["async"])
    conv = ClassInfo("training.models.ConvClassifier", "ConvClassifier", fields=[width], metrics=["val/accuracy"])
    return Description(
        models=[conv],
        data=[ClassInfo("training.data.Digits", "Digits", fields=[batch])],
        strategies=[
            ClassInfo("auto", "single", config_value="auto"),
            ClassInfo("ddp", "ddp", config_value="ddp"),
            ClassInfo("training.strategies.AsyncPS", "AsyncPS", fields=[rule]),
        ],
        optimizers=[ClassInfo("torch.optim.Adam", "Adam", fields=[lr])],
        lr_schedulers=[],
        trainer=[Field("devices", "int", minimum=1), Field("max_epochs", "int", minimum=-1)],
        default_optimizer={"class_path": "torch.optim.Adam", "init_args": {"lr": 0.001}},
    )
