"""`scalebook describe`: models, data sets, strategies, optimizers and the trainer as JSON, made by introspection."""

import argparse
import contextlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any, Final

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import ReduceLROnPlateau
from torch.nn import Module

import scalebook.training.zoo.data
import scalebook.training.zoo.models
import scalebook.training.zoo.optimizers
from scalebook.training.base import SETTINGS, UNTRUSTED, ConfigError, Workspace, extras, import_modules, trust
from scalebook.training.cli.logged import logged
from scalebook.training.cli.model_making import parameters
from scalebook.training.experiments import (
    GROUPS,
    ClassInfo,
    Confinement,
    Description,
    Field,
    ModelParameters,
    NotOffered,
    Source,
    catalogue,
    classes,
    describe_class,
    fields_of,
    logged_metrics,
    offered,
)
from scalebook.training.jobs import dry_runs
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers
from scalebook.training.tracking import names

DEFAULT_OPTIMIZER: Final[dict[str, Any]] = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.002}}

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
"""Smallest values of arguments of Lightning and torch, whose types lack them. Scalebook's classes declare theirs."""

FRACTION_OR_COUNT: Final = frozenset(
    {"limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches",
     "val_check_interval"}
)  # fmt: skip
PRECISIONS: Final = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true")
TRAINER_HELP: Final = {
    "devices": (
        "Number of workers on each machine. On a CPU, this is the number of processes; otherwise, the number of GPUs."
    ),
    "num_nodes": "Number of nodes of this run. On a cluster, the queue chooses the nodes. Otherwise, start the run "
    "on each node with torchrun or srun.",
    "max_epochs": (
        "Stop after this number of passes over the data (by all workers together). With -1, there is no limit."
    ),
    "min_epochs": "Train for at least this many epochs.",
    "min_steps": "Train for at least this many updates of the parameters.",
    "fast_dev_run": "Run only this number of batches in training, validation and test. With true, run one batch.",
    "limit_train_batches": "Train on this share (0.5) or number (100) of each worker's batches.",
    "limit_val_batches": "Validate on this share (0.5) or number (100) of the batches.",
    "limit_test_batches": "Test on this share (0.5) or number (100) of the batches.",
    "limit_predict_batches": "Predict on this share (0.5) or number (100) of the batches.",
    "overfit_batches": "Train and validate on the same share (0.01) or number (10) of training batches.",
    "num_sanity_val_steps": (
        "Number of batches to validate before training starts. With -1, all batches. The default is 0."
    ),
    "log_every_n_steps": "Log training metrics every n updates. The default is 50.",
    "enable_checkpointing": "Whether to write checkpoints.",
    "enable_progress_bar": "Whether to show Lightning's progress bar. By default, it is shown only in a terminal.",
    "enable_model_summary": "Whether to print a summary of the model before training.",
    "gradient_clip_algorithm": "What to clip: the norm of the gradients, or each value. The default is norm.",
    "deterministic": (
        "Use only deterministic algorithms. With warn, print a warning if an operation has no deterministic algorithm."
    ),
    "benchmark": (
        "Whether cuDNN first measures several algorithms and then uses the fastest (torch.backends.cudnn.benchmark)."
    ),
    "inference_mode": "Whether to evaluate under torch.inference_mode. With false, torch.no_grad is used instead.",
    "use_distributed_sampler": (
        "Whether to divide the data among the workers. With false, the data module must divide the data itself."
    ),
    "detect_anomaly": "Look for NaN in the backward pass and report the operation that produced it. This is slow.",
    "barebones": "Turn off checkpoints, loggers, progress bar and summary, to measure the Trainer's own overhead.",
    "sync_batchnorm": (
        "Share the batch-normalisation statistics among the workers in each forward pass. This works only with DDP."
    ),
    "reload_dataloaders_every_n_epochs": "Create new data loaders every n epochs. With 0, never.",
    "default_root_dir": "Default folder for files. A run that is recorded uses the folder of the run instead.",
    "enable_autolog_hparams": "Whether Lightning's loggers record the hyper-parameters.",
    "model_registry": "Name under which the model is uploaded to Lightning's Model Hub.",
    "max_steps": "Stop after this number of updates of the parameters. With -1, there is no limit.",
    "max_time": "Stop after this time, in the form days:hours:minutes:seconds, such as 00:00:10:00.",
    "accumulate_grad_batches": "Number of batches per worker whose gradients are accumulated into one update.",
    "gradient_clip_val": "Clip gradients to this norm. If empty, gradients are not clipped.",
    "precision": "Floating-point precision. The mixed precisions keep the parameters in 32 bits.",
    "val_check_interval": "How often to validate: a fraction of each epoch (0.25), a number of batches per worker "
    "(for 4 workers, 100 means 400 batches in total; at most the batches of one epoch), or a "
    "time (00:00:05:00).",
    "check_val_every_n_epoch": "Validate every n epochs. With null, val_check_interval counts the batches of each "
    "worker across epochs, so val_check_interval must be a whole number or a time.",
}
CONTAINERS: Final = frozenset(
    {"Container", "DataParallel", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"}
)
"""Classes of `torch.nn` that cannot be made from a config alone."""
UNTYPED: Final = re.compile(r"Parameter '(?P<argument>\w+)' from '[^']*' does not specify a type")
OBJECTS_OF_TRAINER: Final = frozenset({"callbacks", "logger", "plugins", "strategy", "profiler", "accelerator"})


def describe(workspace: Workspace) -> Description:
    """All classes and keys that a config in this workspace may name. Imports the user's modules; one that fails becomes
    a problem."""
    modules, problems = import_modules(workspace)
    own: list[tuple[ModuleType, Source]] = [(module, "user") for module in modules]
    packages = [module.__name__ for module in modules]
    by_path = network_classes(packages) if packages else {}
    models, refused = _classes([(scalebook.training.zoo.models, "scalebook"), *own], LightningModule, packages, by_path)
    data, more = _classes([(scalebook.training.zoo.data, "scalebook"), *own], LightningDataModule, packages, by_path)
    takes_one = any(field.group == "modules" for info in (*models, *data) for field in info.fields)
    networks, yet_more = _networks(by_path, packages) if takes_one else ([], [])
    return Description(
        models=models,
        data=data,
        modules=networks,
        packages=packages,
        refused=refused + more + yet_more,
        strategies=_strategies(packages),
        optimizers=_optimizers(),
        lr_schedulers=_schedulers(),
        trainer=_trainer(),
        default_optimizer=DEFAULT_OPTIMIZER,
        content=catalogue.content_hash(workspace),
        problems=problems,
    )


def _classes(
    modules: Iterable[tuple[ModuleType, Source]], base: type, packages: Sequence[str], by_path: Mapping[str, type]
) -> tuple[list[ClassInfo], list[NotOffered]]:
    """The concrete subclasses of `base` that the modules define, with their paths in these modules; and the classes
    that no config can name.

    Of classes with the same short name the first has it; the others are named by their path.
    """
    classes: dict[type, ClassInfo] = {}
    refused: list[NotOffered] = []
    for module, source in modules:
        for name, kind in sorted(vars(module).items()):
            if not inspect.isclass(kind) or not issubclass(kind, base) or kind is base or kind in classes:
                continue
            path = f"{module.__name__}.{name}"
            if why := _unfit(name, kind, module):
                refused.append(NotOffered(path, *why, by_mistake=False))
                continue
            if needed := extras.missing_packages(kind):
                refused.append(NotOffered(path, *needed, by_mistake=False, lacks_extra=True))
                continue
            try:
                facts = _model_facts(kind)
                classes[kind] = describe_class(kind, path, source, packages=packages, modules=by_path, **facts)
            except Exception as error:  # noqa: BLE001 - a class that cannot be read is reported, the others stay usable
                refused.append(_unread(path, error))
    return _by_first_name([*classes.values()]), refused


def _by_first_name(classes: Sequence[ClassInfo]) -> list[ClassInfo]:
    first = {info.name: info for info in reversed(classes)}
    return [info if first[info.name] is info else replace(info, name=info.class_path) for info in classes]


def _unfit(name: str, kind: type, module: ModuleType) -> tuple[str, str] | None:
    """Why a config cannot name this class, and the remedy; None if it can."""
    if inspect.isabstract(kind):
        left = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        return f"is abstract, because it does not define {left}", f"Use a subclass that defines {left}."
    if name.startswith("_"):
        return "is private, because its name begins with an underscore", "Rename it."
    if not kind.__module__.startswith(module.__name__):
        return f"is only imported in this module and defined in {kind.__module__}", (
            f"Add {kind.__module__} to modules in {SETTINGS}."
        )
    return None


def _unread(path: str, error: Exception) -> NotOffered:
    """The entry of a class whose constructor jsonargparse cannot read."""
    words = " ".join(str(error).split())
    if untyped := UNTYPED.search(words):
        argument = untyped["argument"]
        return NotOffered(
            path,
            f"has an argument without a type: {argument}",
            f"Annotate the argument, for example `{argument}: int`, or add a default.",
        )
    return NotOffered(path, f"cannot be read ({type(error).__name__}: {words})", "Change its constructor.")


def network_classes(packages: Sequence[str]) -> dict[str, type]:
    """The subclasses of `torch.nn.Module` that a config may name, by path: those of the user's modules and of
    `torch.nn`."""
    theirs = {
        f"{kind.__module__}.{kind.__name__}": kind
        for kind in _below(Module)
        if classes.within(f"{kind.__module__}.", packages)
        and not kind.__name__.startswith("_")
        and not inspect.isabstract(kind)
    }
    own = {
        path: kind for path, kind in theirs.items() if getattr(sys.modules[kind.__module__], kind.__name__, 0) is kind
    }
    layers = {
        f"torch.nn.{name}": kind
        for name, kind in sorted(vars(torch.nn).items())
        if inspect.isclass(kind) and issubclass(kind, Module) and name not in CONTAINERS
    }
    ends = {path: kind for path, kind in own.items() if issubclass(kind, LightningModule)}
    return {**{path: kind for path, kind in own.items() if path not in ends}, **layers, **ends}


def _below(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _below(kind)


def _networks(by_path: Mapping[str, type], packages: Sequence[str]) -> tuple[list[ClassInfo], list[NotOffered]]:
    """The classes for an argument such as `net: torch.nn.Module`, and those that no config can name."""
    classes: list[ClassInfo] = []
    refused: list[NotOffered] = []
    for path, kind in by_path.items():
        source: Source = "library" if path.startswith("torch.") else "user"
        try:
            classes.append(describe_class(kind, path, source, packages=packages, modules=by_path))
        except Exception as error:  # noqa: BLE001 - as above
            if source == "library":
                refused.append(
                    NotOffered(
                        path, "has arguments without types", "Define a subclass whose arguments have types.", False
                    )
                )
            elif not issubclass(kind, LightningModule):  # of which models tell
                refused.append(_unread(path, error))
    return _by_first_name(classes), refused


def _model_facts(kind: type) -> dict[str, Any]:
    if not issubclass(kind, LightningModule):
        return {}
    metrics = getattr(kind, "metrics", None)
    declared = isinstance(metrics, tuple | list) and all(isinstance(name, str) for name in metrics)
    own = kind.configure_optimizers is not LightningModule.configure_optimizers
    return {
        "own_optimizer": own,
        "metrics": list(metrics) if declared and metrics else logged(kind) or [names.VAL_LOSS],
    }


def _strategies(packages: Sequence[str]) -> list[ClassInfo]:
    single = ClassInfo(
        "lightning.pytorch.strategies.SingleDeviceStrategy",
        "single",
        "One process computes every gradient. This is the baseline.",
        source="library",
        config_value="auto",
    )
    ddp = describe_class(DDP, "scalebook.training.lightning.DDP", "scalebook", packages=packages, config_value="ddp")
    ddp = replace(ddp, name="ddp", fields=[field for field in ddp.fields if field.name == "codec"])
    ours = describe_class(
        AsyncPS, "scalebook.training.lightning.AsyncPS", "scalebook", skip=STRATEGY_PLUMBING, packages=packages
    )
    peers = describe_class(
        Peers, "scalebook.training.lightning.Peers", "scalebook", skip=STRATEGY_PLUMBING, packages=packages
    )
    split = describe_class(ModelParallel, "scalebook.training.lightning.ModelParallel", "scalebook", packages=packages)
    return [single, ddp, ours, peers, split]


def _optimizers() -> list[ClassInfo]:
    skip = frozenset({"params"})
    library = [
        _library_class(getattr(torch.optim, entry.name), entry.path, skip, BASIC_OPTIMIZER_FIELDS)
        for entry in offered("torch.optim")
    ]
    module = scalebook.training.zoo.optimizers
    ours = [
        describe_class(getattr(module, entry.name), entry.path, "scalebook", skip=skip, basic=BASIC_OPTIMIZER_FIELDS)
        for entry in offered(module.__name__)
    ]
    return library + ours


def _schedulers() -> list[ClassInfo]:
    module = torch.optim.lr_scheduler
    classes = [(getattr(module, entry.name), entry.path) for entry in offered(module.__name__)]
    classes += [(ReduceLROnPlateau, entry.path) for entry in offered(ReduceLROnPlateau.__module__)]
    return [_library_class(kind, path, frozenset({"optimizer", "last_epoch"}), None) for kind, path in classes]


def _library_class(kind: type, path: str, skip: frozenset[str], basic: frozenset[str] | None) -> ClassInfo:
    info = describe_class(kind, path, "library", skip=skip, basic=basic)
    return replace(info, fields=[_bounded(field) for field in info.fields])


def _trainer() -> list[Field]:
    """All arguments of Lightning's Trainer except `strategy`; those that take objects are free YAML."""
    simple = fields_of(Trainer, skip=OBJECTS_OF_TRAINER, basic=BASIC_TRAINER_FIELDS)
    accelerator = Field(
        "accelerator",
        "enum",
        "Device to train on. With auto, a free GPU is used if there is one.",
        default="auto",
        choices=["auto", "cpu", "gpu"],
    )
    objects = [
        Field(name, "json", help_, nullable=True, advanced=True)
        for name, help_ in (
            ("callbacks", "More Lightning callbacks, each {class_path, init_args}."),
            ("logger", "More Lightning loggers, in addition to MLflow."),
            ("plugins", "Lightning plugins."),
            ("profiler", "A Lightning profiler: simple, advanced or pytorch."),
        )
    ]
    return [accelerator, *(_bounded(field) for field in simple), *objects]


def _bounded(field: Field) -> Field:
    """The field with the bounds that Lightning or torch check only later, and with Scalebook's help if there is one."""
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


def main(args: argparse.Namespace) -> int:
    """What the command line, as `scalebook.training.cli.describe_command` reads it, asks for, as JSON."""
    workspace = Workspace(args.workspace.resolve()) if args.workspace else Workspace.find()
    trust.resolve_trust(workspace, args.trust)
    if args.parameters:
        print(json.dumps(asdict(_parameters(workspace, args.parameters))))
        return 0
    if args.logged:
        print(json.dumps(asdict(_logged(workspace, args.logged))))
        return 0
    if args.dry_run:
        print(json.dumps(asdict(_dry_run(workspace, args.dry_run))))
        return 0
    description = describe(workspace)
    if args.class_path is None:
        print(description.to_json())
        return 0
    for group in GROUPS:
        if info := description.find(group, args.class_path):
            print(json.dumps(asdict(info), indent=1))
            return 0
    raise _unknown(args.class_path, description)


def _unknown(name: str, description: Description) -> ConfigError:
    """The error for a class that is not in the description."""
    if (refused := description.refusal(name)) is not None:
        return ConfigError(name, refused.why, refused.fix)
    class_names = [info.name for group in GROUPS for info in getattr(description, group)]
    fix = classes.suggestion(name, class_names)
    waiting = [problem.partition(":")[0] for problem in description.problems if UNTRUSTED in problem]
    if classes.within(name, waiting) or (waiting and "." not in name and not fix.startswith("Did")):
        why = f"is not a known class, but these modules in {SETTINGS} are not trusted yet: {', '.join(waiting)}"
        return ConfigError(name, why, f"Read these modules, then run the command once with {trust.OPTION}.")
    if failed := [problem for problem in description.problems if classes.within(name, [problem.partition(":")[0]])]:
        return ConfigError(name, "is in a module that cannot be imported", failed[0])
    return ConfigError(name, "is not a known class", fix)


def _admitted(workspace: Workspace, text: str) -> dict[str, Any]:
    """A config in JSON, with the folder's own modules imported. ConfigError for what a folder that is not trusted may
    not name."""
    config = json.loads(text)
    if not trust.trusted(workspace):
        Confinement(config).confine(workspace.root)
    import_modules(workspace)
    return dict(config)


def _parameters(workspace: Workspace, text: str) -> ModelParameters:
    """The parameters of the model of a config in JSON; the folder's own models only if the folder is trusted."""
    config = _admitted(workspace, text)
    with contextlib.redirect_stdout(sys.stderr):  # Lightning's hints are none of the answer
        return parameters(config)


def _logged(workspace: Workspace, text: str) -> logged_metrics.LoggedMetrics:
    """The metrics of two batches of a config in JSON; in a folder that is not trusted only if it has no modules of its
    own."""
    from scalebook.training.cli.dry_run import list_metrics

    if not trust.trusted(workspace) and (waiting := trust.importable(workspace)):
        return logged_metrics.LoggedMetrics(
            problem=f"this folder is not trusted, and it contains modules: {', '.join(waiting)}"
        )
    config = _admitted(workspace, text)
    with contextlib.redirect_stdout(sys.stderr):
        return list_metrics(config)


def _dry_run(workspace: Workspace, text: str) -> dry_runs.DryRunResult:
    """The result of a dry run of a config in JSON. As in a run, nothing is imported from a folder that is not
    trusted."""
    from scalebook.training.cli.dry_run import dry_run

    config = _admitted(workspace, text)
    with contextlib.redirect_stdout(sys.stderr):
        return dry_run(config, workspace)
