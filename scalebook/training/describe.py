"""`scalebook describe`: models, data sets, strategies, optimizers and the trainer as JSON, made by introspection."""

import argparse
import contextlib
import inspect
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import ReduceLROnPlateau

import scalebook.training.data
import scalebook.training.models
import scalebook.training.optimizers
from scalebook.training.config.catalogue import content_hash
from scalebook.training.config.classes import suggestion
from scalebook.training.config.confined import confine
from scalebook.training.config.description import GROUPS, ClassInfo, Description, Field
from scalebook.training.config.model_parameters import ModelParameters
from scalebook.training.errors import ConfigError
from scalebook.training.introspect import Source, describe_class, fields_of
from scalebook.training.model_making import parameters
from scalebook.training.modules import import_modules
from scalebook.training.strategies import DDP, AsyncPS
from scalebook.training.tracking.names import VAL_LOSS
from scalebook.training.trust import HELP, OPTION, settle, trusted
from scalebook.training.workspace import Workspace

DEFAULT_OPTIMIZER: Final[dict[str, Any]] = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.002}}

OPTIMIZERS: Final = (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Adafactor",
    "SparseAdam",
)  # fmt: skip
"""Those that step once per gradient on parameters of any shape (not LBFGS, Muon, Rprop); SparseAdam on sparse tables
alone."""

SCHEDULERS: Final = (
    "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "LinearLR",
    "PolynomialLR", "ConstantLR",
)  # fmt: skip
"""Those whose arguments YAML can hold and that make sense stepped once an epoch, as LightningCLI does."""

BASIC_OPTIMIZER_FIELDS: Final = frozenset({"lr", "momentum", "weight_decay", "betas", "nesterov", "alpha"})
STRATEGY_PLUMBING: Final = frozenset(
    {"accelerator", "parallel_devices", "cluster_environment", "checkpoint_io", "precision_plugin", "kwargs"}
)
BASIC_TRAINER_FIELDS: Final = frozenset(
    {"max_epochs", "max_steps", "max_time", "devices", "gradient_clip_val", "accumulate_grad_batches", "precision"}
)
LEAST: Final[dict[str, float]] = {
    "accumulate_grad_batches": 1, "gradient_clip_val": 0, "max_epochs": -1, "max_steps": -1, "log_every_n_steps": 1,
    "limit_train_batches": 0, "limit_val_batches": 0, "num_nodes": 1, "check_val_every_n_epoch": 1, "devices": 1,
    "lr": 0, "weight_decay": 0, "momentum": 0, "eps": 0, "step_size": 1, "T_max": 1, "total_iters": 1, "patience": 0,
}  # fmt: skip
"""Smallest value of arguments of Lightning's and torch's whose types say less. Classes of ours declare it."""

FRACTION_OR_COUNT: Final = frozenset(
    {"limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches",
     "val_check_interval"}
)  # fmt: skip
PRECISIONS: Final = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true")
TRAINER_HELP: Final = {
    "devices": "Workers of this run, on each machine: processes on a CPU, GPUs on a GPU.",
    "num_nodes": "Machines of this run: the queue finds them on a cluster; else start it on each (torchrun, srun).",
    "max_epochs": "Stop after so many passes over the data by all workers together; -1 is no limit.",
    "max_steps": "Stop after so many updates of the parameters; -1 is no limit.",
    "max_time": "Stop after this time, written days:hours:minutes:seconds, such as 00:00:10:00.",
    "accumulate_grad_batches": "Batches of a worker whose gradients are added up before one update.",
    "gradient_clip_val": "Shrink gradients whose norm is above this; empty is no clipping.",
    "precision": "Numbers to compute with; mixed keeps the parameters in 32 bits.",
    "val_check_interval": "Validate after a part of each epoch (0.25), after so many batches of each worker (100, of 4 "
    "workers 400 together; not more than a worker has in an epoch), or after a time (00:00:05:00).",
    "check_val_every_n_epoch": "Validate in every so many epochs only. Null: val_check_interval counts the batches of "
    "each worker across epochs, and has to be a whole number, or a time.",
}
OBJECTS_OF_TRAINER: Final = frozenset({"callbacks", "logger", "plugins", "strategy", "profiler", "accelerator"})


def describe(workspace: Workspace) -> Description:
    """All that a config in this workspace may name. Imports the user's modules; a failing one becomes a problem."""
    modules, problems = import_modules(workspace)
    own: list[tuple[ModuleType, Source]] = [(module, "user") for module in modules]
    packages = [module.__name__ for module in modules]
    models, more = _classes([(scalebook.training.models, "scalebook"), *own], LightningModule, packages)
    data, yet_more = _classes([(scalebook.training.data, "scalebook"), *own], LightningDataModule, packages)
    return Description(
        models=models,
        data=data,
        strategies=_strategies(packages),
        optimizers=_optimizers(),
        lr_schedulers=_schedulers(),
        trainer=_trainer(),
        default_optimizer=DEFAULT_OPTIMIZER,
        content=content_hash(workspace),
        problems=problems + more + yet_more,
    )


def _classes(
    modules: Iterable[tuple[ModuleType, Source]], base: type, packages: Sequence[str]
) -> tuple[list[ClassInfo], list[str]]:
    """The concrete subclasses of `base` that the modules define, by the path under which they offer them.

    A short name is of the first that has it; a later one is called by its path.
    """
    classes: dict[type, ClassInfo] = {}
    problems: list[str] = []
    for module, source in modules:
        for name, kind in sorted(vars(module).items()):
            wanted = inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)
            if not wanted or name.startswith("_") or kind in classes or not kind.__module__.startswith(module.__name__):
                continue
            path = f"{module.__name__}.{name}"
            try:
                classes[kind] = describe_class(kind, path, source, packages=packages, **_model_facts(kind))
            except Exception as error:  # noqa: BLE001 - a class that cannot be read is reported, the others stay usable
                problems.append(f"{path}: {type(error).__name__}: {' '.join(str(error).split())}")
    first = {info.name: info for info in reversed(classes.values())}
    return [
        info if first[info.name] is info else replace(info, name=info.class_path) for info in classes.values()
    ], problems


def _model_facts(kind: type) -> dict[str, Any]:
    if not issubclass(kind, LightningModule):
        return {}
    metrics = getattr(kind, "metrics", None)
    known = isinstance(metrics, tuple | list) and all(isinstance(name, str) for name in metrics)
    own = kind.configure_optimizers is not LightningModule.configure_optimizers
    return {"own_optimizer": own, "metrics": list(metrics) if known and metrics else [VAL_LOSS]}


def _strategies(packages: Sequence[str]) -> list[ClassInfo]:
    single = ClassInfo(
        "lightning.pytorch.strategies.SingleDeviceStrategy",
        "single",
        "One process computes every gradient; the yardstick for the others.",
        source="library",
        config_value="auto",
    )
    ddp = describe_class(DDP, "scalebook.training.strategies.DDP", "scalebook", packages=packages, config_value="ddp")
    ddp = replace(ddp, name="ddp", fields=[field for field in ddp.fields if field.name == "codec"])
    ours = describe_class(
        AsyncPS, "scalebook.training.strategies.AsyncPS", "scalebook", skip=STRATEGY_PLUMBING, packages=packages
    )
    return [single, ddp, ours]


def _optimizers() -> list[ClassInfo]:
    skip = frozenset({"params"})
    library = [
        _library_class(getattr(torch.optim, name), f"torch.optim.{name}", skip, BASIC_OPTIMIZER_FIELDS)
        for name in OPTIMIZERS
    ]
    ours = [
        describe_class(
            getattr(scalebook.training.optimizers, name), f"scalebook.training.optimizers.{name}", "scalebook",
            skip=skip, basic=BASIC_OPTIMIZER_FIELDS,
        )
        for name in scalebook.training.optimizers.__all__
    ]  # fmt: skip
    return library + ours


def _schedulers() -> list[ClassInfo]:
    module = torch.optim.lr_scheduler
    classes = [(getattr(module, name), f"torch.optim.lr_scheduler.{name}") for name in SCHEDULERS]
    classes.append((ReduceLROnPlateau, "lightning.pytorch.cli.ReduceLROnPlateau"))
    return [_library_class(kind, path, frozenset({"optimizer", "last_epoch"}), None) for kind, path in classes]


def _library_class(kind: type, path: str, skip: frozenset[str], basic: frozenset[str] | None) -> ClassInfo:
    info = describe_class(kind, path, "library", skip=skip, basic=basic)
    return replace(info, fields=[_bounded(field) for field in info.fields])


def _trainer() -> list[Field]:
    """Every key of Lightning's Trainer but `strategy`; those that take objects are free YAML."""
    simple = fields_of(Trainer, skip=OBJECTS_OF_TRAINER, basic=BASIC_TRAINER_FIELDS)
    accelerator = Field(
        "accelerator",
        "enum",
        "Where to compute; auto takes a GPU where one is free.",
        default="auto",
        choices=["auto", "cpu", "gpu"],
    )
    objects = [
        Field(name, "json", help_, nullable=True, advanced=True)
        for name, help_ in (
            ("callbacks", "Further Lightning callbacks, each {class_path, init_args}."),
            ("logger", "Further Lightning loggers; MLflow is always there."),
            ("plugins", "Lightning plugins."),
            ("profiler", "A Lightning profiler: simple, advanced or pytorch."),
        )
    ]
    return [accelerator, *(_bounded(field) for field in simple), *objects]


def _bounded(field: Field) -> Field:
    """The field with bounds that Lightning or torch check only later, and with our own help where it matters most."""
    help_ = TRAINER_HELP.get(field.name, field.help)
    bounded = replace(field, minimum=LEAST.get(field.name, field.minimum), help=help_)
    if field.name in FRACTION_OR_COUNT:
        return replace(bounded, type="json")  # 1.0 is all batches, 1 is one batch: the form must not mix them up
    if field.name == "devices":
        return replace(bounded, type="int", default=1)
    if field.name == "precision":
        return replace(bounded, choices=list(PRECISIONS), default=PRECISIONS[0])
    if field.name == "gradient_clip_algorithm":
        return replace(bounded, type="enum", choices=["norm", "value"])
    return bounded


def main(argv: list[str]) -> int:
    """Print the description, or one class of it, as JSON; a class by its path or its short name."""
    args = _read(argv)
    workspace = Workspace(args.workspace.resolve()) if args.workspace else Workspace.find()
    settle(workspace, args.trust)
    if args.parameters:
        print(json.dumps(asdict(_parameters(workspace, json.loads(args.parameters)))))
        return 0
    description = describe(workspace)
    if args.class_path is None:
        print(description.to_json())
        return 0
    for group in GROUPS:
        if info := description.find(group, args.class_path):
            print(json.dumps(asdict(info), indent=1))
            return 0
    known = [info.name for group in GROUPS for info in getattr(description, group)]
    raise ConfigError(args.class_path, "is no known class", suggestion(args.class_path, known))


def _parameters(workspace: Workspace, config: dict[str, Any]) -> ModelParameters:
    """Of a model of ours, or of the folder's own where that is trusted."""
    if not trusted(workspace):
        confine(config, workspace.root)
    import_modules(workspace)
    with contextlib.redirect_stdout(sys.stderr):  # Lightning's hints are none of the answer
        return parameters(config)


def _read(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scalebook describe", description=inspect.getdoc(main))
    parser.add_argument("--parameters", metavar="CONFIG", help="shapes of the model in this config: JSON, with data")
    parser.add_argument("class_path", nargs="?", help="for example PixelCNN or torch.optim.Adam")
    parser.add_argument("--workspace", type=Path, help="folder with the notebooks (default: found from here upwards)")
    parser.add_argument(OPTION, action="store_true", help=HELP)
    return parser.parse_args(argv)
