"""A description small enough to reason about, with one of everything a form must cope with."""

from scalebook.training.engine.rules.update_rules import Async, Bounded
from scalebook.training.experiments.description import ClassInfo, Description, Field

ASYNC = ClassInfo(
    "scalebook.training.engine.rules.Async",
    "Async",
    "Nobody waits.",
    config_value="async",
    rule=Async.facts(),
)
BOUNDED = ClassInfo(
    "scalebook.training.engine.rules.Bounded",
    "Bounded",
    "Nobody runs ahead.",
    fields=[Field("bound", "int", "How far.", default=4, minimum=1)],
    config_value="bounded",
    rule=Bounded.facts(),
)
LR = Field("lr", "float", "Learning rate.", default=0.001, minimum=0.0, exclusive_minimum=True)


def description() -> Description:
    """Two models (one with its own optimizer), one data set, three strategies, two optimizers, one schedule."""
    return Description(
        models=[
            ClassInfo(
                "scalebook.training.zoo.models.PixelCNN",
                "PixelCNN",
                "Draws images.",
                fields=[
                    Field("features", "int", "Channels.", default=16, minimum=1, maximum=512),
                    Field("activation", "enum", "Non-linearity.", default="relu", choices=["relu", "elu"]),
                    Field("dropout", "float", "Share dropped.", nullable=True, minimum=0.0, maximum=1.0),
                    Field("gated", "bool", "With gates.", default=True, advanced=True),
                ],
                metrics=["val/bits_per_dim", "val/loss"],
            ),
            ClassInfo("my.models.Own", "Own", "Chooses for itself.", source="user", own_optimizer=True),
        ],
        data=[
            ClassInfo(
                "scalebook.training.zoo.data.Digits",
                "Digits",
                fields=[Field("batch_size", "int", "Samples a worker takes at a time.", default=64, minimum=1)],
            )
        ],
        strategies=[
            ClassInfo("auto", "single", "One process.", config_value="auto"),
            ClassInfo("ddp", "ddp", "All average.", config_value="ddp"),
            ClassInfo(
                "scalebook.training.lightning.AsyncPS",
                "AsyncPS",
                "Nobody waits.",
                fields=[
                    Field(
                        "rule",
                        "class",
                        "What the server does.",
                        default="async",
                        choices=["async", "bounded"],
                        options=[ASYNC, BOUNDED],
                    ),
                    Field("workers", "int", nullable=True, minimum=1),
                ],
            ),
        ],
        optimizers=[
            ClassInfo("torch.optim.Adam", "Adam", source="library", fields=[LR]),
            ClassInfo("torch.optim.SGD", "SGD", source="library", fields=[LR, Field("momentum", "float", default=0.0)]),
        ],
        lr_schedulers=[
            ClassInfo("torch.optim.lr_scheduler.StepLR", "StepLR", fields=[Field("step_size", "int", required=True)])
        ],
        trainer=[
            Field("devices", "json", default="auto"),
            Field("max_epochs", "int", nullable=True, minimum=-1),
            Field("max_steps", "int", default=-1, minimum=-1),
            Field("max_time", "json", nullable=True),
            Field("gradient_clip_val", "float", "Clips.", nullable=True, minimum=0.0),
            Field("log_every_n_steps", "int", "How often.", default=10, minimum=1),
        ],
        default_optimizer={"class_path": "torch.optim.Adam", "init_args": {"lr": 0.001}},
    )
