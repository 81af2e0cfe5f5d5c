"""What a config of a folder that is not trusted may do: name classes that are known to be harmless, write within it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.errors import ConfigError, Problem
from scalebook.training.experiments.classes import mapping

CHECKPOINT_KEY: Final = re.compile(r"(?:.*_)?(?:ckpt|checkpoint)(?:_path|_file)?", re.IGNORECASE)
"""The names under which configs give checkpoints: `ckpt_path`, `resume_from_checkpoint`, `checkpoint_file`."""
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|.*(?:://|::)", re.DOTALL)
"""A scheme with its colon, also in the middle, where fsspec chains several (`zip://a::s3://b`)."""
FETCHED: Final = ("http", "registry")
"""What Lightning takes for an address, or for Lightning's own registry of models, by its first letters alone."""


def is_address(value: str) -> bool:
    """Whether a library may take `value` for more than the path of a file here."""
    text = value.strip()
    return SCHEME.match(text) is not None or text.lower().startswith(FETCHED)


def checkpoint_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Checkpoints, at any depth of `config`, that are no files of this machine."""
    problems = [
        Problem(
            key,
            f"is the address {value!r}, but checkpoints must be local files",
            "Download it from a source you trust, and write its path (with ./ before a name that looks like an "
            "address).",
        )
        for key, value in _checkpoints(config)
        if isinstance(value, str) and is_address(value)
    ]
    checkpoint = config.get("ckpt_path")
    if checkpoint is not None and not isinstance(checkpoint, str):
        problems.append(Problem("ckpt_path", f"is {checkpoint!r}, not a path", "Write the path of a .ckpt file."))
    return problems


def _checkpoints(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            where = f"{key}.{name}" if key else str(name)
            if CHECKPOINT_KEY.fullmatch(str(name)):
                yield where, below
            yield from _checkpoints(below, where)
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from _checkpoints(below, f"{key}.{place}")


PACKAGES: Final = (
    "scalebook.training.zoo.models",
    "scalebook.training.zoo.data",
    "scalebook.training.zoo.optimizers",
    "scalebook.training.lightning",
    "scalebook.training.engine",
)
"""Ours, whose classes take numbers and words."""
CLASSES: Final = frozenset(
    [f"torch.optim.{name}" for name in (
        "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Adafactor",
    )] +
    [f"torch.optim.lr_scheduler.{name}" for name in (
        "StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "LinearLR",
        "PolynomialLR", "ConstantLR",
    )] +
    [f"lightning.pytorch.callbacks.{name}" for name in (
        "BatchSizeFinder", "DeviceStatsMonitor", "EMAWeightAveraging", "EarlyStopping", "GradientAccumulationScheduler",
        "LearningRateFinder", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint",
        "RichModelSummary", "RichProgressBar", "TQDMProgressBar", "ThroughputMonitor", "Timer",
    )] +
    ["lightning.pytorch.cli.ReduceLROnPlateau", "lightning.pytorch.strategies.SingleDeviceStrategy",
     "lightning.pytorch.strategies.DDPStrategy", "lightning.pytorch.loggers.CSVLogger",
     "lightning.pytorch.loggers.TensorBoardLogger", "lightning.pytorch.profilers.SimpleProfiler",
     "lightning.pytorch.profilers.AdvancedProfiler", "lightning.pytorch.profilers.PassThroughProfiler",
     "scalebook.training.planner.tuning.rate_range.RateRange", "scalebook.training.planner.tuning.batch_try.BatchTry",
     "scalebook.training.planner.step_times.StepTimes"]
)  # fmt: skip
"""Of libraries: those without arguments that name functions, which the parser would import, and without addresses."""
NAMED_IN: Final = ("callbacks", "logger", "plugins", "profiler")
"""Keys of the trainer under which a text may name a class."""
WORDS: Final = re.compile(r"[a-z0-9_\-]*")
"""What is no class there: `simple`, `bf16-mixed`."""
PATHS: Final = ("dirpath", "save_dir", "default_root_dir", "log_dir", "root_dir", "output_dir", "run_dir")
NAMES: Final = ("filename", "name", "version", "sub_dir", "prefix")
"""Keys, below `trainer`, of folders that runs write into, and of what is put behind those."""


def confine(config: Mapping[str, Any], folder: Path, *, typed: bool = False) -> None:
    """ConfigError, when a job begins, for what its folder, which is not trusted, may not ask for.

    `typed`: a person has named the config on the command line, and with it its classes; paths are those of their shell.
    """
    outside = path_problems(config, folder, Path.cwd() if typed else None)
    for problem in outside if typed else [*class_problems(config), *outside]:
        raise ConfigError(problem.key, problem.message, problem.remedy)


def class_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Problems of classes that run, or may run, other code than Scalebook's; and of data that would be downloaded."""
    fetched = [
        Problem(
            key,
            f"is {value!r}, and Scalebook downloads from the Hub only in a folder that you trust",
            "Check the name, then trust the folder: --trust, or the button on the pages.",
        )
        for key, name, value in _texts(config.get("data"), "data")
        if name == "hub"
    ]
    return fetched + [
        Problem(
            key,
            f"names {name}, which needs a folder that you trust",
            "Read what it does, then trust the folder: --trust, or the button on the pages.",
        )
        for key, name in _classes(config)
        if not _harmless(name)
    ]


def path_problems(config: Mapping[str, Any], folder: Path, start: Path | None = None) -> list[Problem]:
    """Problems of paths outside of `folder` where the trainer's parts would write; they begin in `start`, else
    `folder`."""
    root = folder.resolve()
    problems = []
    for key, name, value in _texts(mapping(config.get("trainer")), "trainer"):
        if name in PATHS:
            outside = is_address(value) or not _within(value, root, start or root)
        else:
            outside = name in NAMES and (Path(value).is_absolute() or ".." in Path(value).parts or is_address(value))
        if outside:
            problems.append(
                Problem(
                    key,
                    f"is {value!r}, outside the workspace {root}",
                    "Write a path within it, or trust the folder: --trust, or the button on the pages.",
                )
            )
    return problems


def _within(value: str, root: Path, start: Path) -> bool:
    try:
        return (start / Path(value).expanduser()).resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # links in a circle, no such user, a NUL
        return False


def _harmless(name: str) -> bool:
    """Whether the class is one of ours or of the libraries that may be named, by full path or by bare name."""
    package, _, bare = name.rpartition(".")
    if not package:
        return bare in BARE
    return name in CLASSES or any(f"{package}.".startswith(f"{prefix}.") for prefix in PACKAGES)


BARE: Final = frozenset(name.rpartition(".")[2] for name in CLASSES)


def _classes(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every class that a config names, with its key; of a model or a data set those by full path."""
    for key, name, value in _texts(config, ""):
        if name == "class_path" and ("." in value or key.startswith(tuple(f"trainer.{key_}" for key_ in NAMED_IN))):
            yield key, value
    for name in NAMED_IN:
        value_ = mapping(config.get("trainer")).get(name)
        for place, word in enumerate(value_ if isinstance(value_, list) else [value_]):
            if isinstance(word, str) and not WORDS.fullmatch(word):
                yield f"trainer.{name}.{place}" if isinstance(value_, list) else f"trainer.{name}", word
    for key in ("model", "data", "optimizer", "lr_scheduler"):
        value_ = config.get(key)
        if isinstance(value_, str) and "." in value_:
            yield key, value_


def _texts(value: Any, key: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text of a config: its dotted key, the last name in that key, and the text."""
    if isinstance(value, Mapping):
        for name_, below in value.items():
            yield from _texts(below, f"{key}.{name_}" if key else str(name_), str(name_))
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from _texts(below, f"{key}.{place}", name)
    elif isinstance(value, str):
        yield key, name, value
