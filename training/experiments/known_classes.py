"""The classes of Scalebook and of libraries that configs may name: one entry each, with its path of today.

A class path of ours, one that begins with `scalebook.`, is resolved by its last name: whoever moves a class changes its
path here, and every config, job and archive that names it goes on.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OURS: Final = "scalebook."
"""How the class paths of ours begin."""
CLASS_PATH: Final = re.compile(r"\w+(\.\w+)+")
RULES: Final = "scalebook.training.engine.rules"
CALLBACKS: Final = "lightning.pytorch.callbacks"


@dataclass(frozen=True)
class KnownClass:
    """One class by the path at which configs name it, also in folders that are not trusted: its arguments are numbers,
    words and paths within the folder."""

    path: str
    offered: bool = False
    """Whether forms offer it; of the models, data sets and settings of ours `describe` finds out by itself."""
    path_in_hashes: str = ""
    """What hashes have in place of its path: its short name, with the folder of version 0.1 if it was there then, so
    that the hashes of recorded runs stay."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def _classes(module: str, names: str, path_in_hashes: str = "", *, offered: bool = False) -> list[KnownClass]:
    before = f"{path_in_hashes}." if path_in_hashes else ""
    return [KnownClass(f"{module}.{name}", offered, path_in_hashes=f"{before}{name}") for name in names.split()]


CLASSES: Final = (
    *_classes(
        "scalebook.training.zoo.models",
        "Classifier ConvClassifier ImageModel MLPClassifier PixelCNN Ranker Translator", "training.models",
    ),
    *_classes(
        "scalebook.training.zoo.data",
        "Dataset Digits Docstrings ImageDataModule Messages ParallelText PhotoPatches", "training.data",
    ),
    *_classes("scalebook.training.zoo.optimizers", "LAMB LARS", "training.optimizers", offered=True),
    *_classes("scalebook.training.lightning", "AsyncPS DDP ModelParallel Peers", "training.strategies"),
    *_classes(RULES, "Async Bounded Softsync Sync", "training.ps.rules"),
    *_classes(RULES, "DelayCompensation DropAbove Inverse NoDamping", "training.ps.damping"),
    *_classes(
        RULES, "Bf16 Fp16 Fp32 Int8 PowerSgd Qsgd RandomK Sign TopK", "training.ps.policy.codecs"
    ),
    *_classes(
        RULES,
        "DiLoCo Downpour Elastic LocalSGD NoLocalSteps Significance", "training.ps.policy.local",
    ),
    *_classes(
        RULES, "ClockSettings Death Distribution Link MachineGroup", "training.ps.policy.clock"
    ),
    *_classes(RULES, "AdPsgd DPsgd Gossip Sgp", "training.engine.rules.exchanges"),
    *_classes(
        RULES,
        "Bipartite Complete Exponential OnePeerExponential Ring Torus", "training.engine.rules.topologies",
    ),
    *_classes("scalebook.training.planner.tuning.rate_range", "RateRange", "training.planner.tuning.rate_range"),
    *_classes("scalebook.training.planner.tuning.batch_try", "BatchTry", "training.planner.tuning.batch_try"),
    *_classes("scalebook.training.planner.step_times", "StepTimes", "training.planner.step_times"),
    # Those that step once per gradient on parameters of any shape, not LBFGS, Muon and Rprop; and, for sparse tables
    # only, SparseAdam.
    *_classes(
        "torch.optim",
        "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD Adafactor SparseAdam", offered=True,
    ),
    # Those whose arguments YAML can hold and that work with one step per epoch, as LightningCLI does.
    *_classes(
        "torch.optim.lr_scheduler",
        "StepLR MultiStepLR ExponentialLR CosineAnnealingLR CosineAnnealingWarmRestarts LinearLR PolynomialLR "
        "ConstantLR", offered=True,
    ),
    *_classes("lightning.pytorch.cli", "ReduceLROnPlateau", offered=True),
    # Those without addresses. Arguments that name functions, which the parser would import, are refused by their value.
    *_classes(
        CALLBACKS,
        "BatchSizeFinder DeviceStatsMonitor EMAWeightAveraging EarlyStopping GradientAccumulationScheduler "
        "LearningRateFinder LearningRateMonitor ModelCheckpoint ModelSummary OnExceptionCheckpoint RichModelSummary "
        "RichProgressBar TQDMProgressBar ThroughputMonitor Timer",
    ),
    *_classes("lightning.pytorch.strategies", "SingleDeviceStrategy DDPStrategy"),
    *_classes("lightning.pytorch.loggers", "CSVLogger TensorBoardLogger"),
    *_classes("lightning.pytorch.profilers", "SimpleProfiler AdvancedProfiler PassThroughProfiler"),
)  # fmt: skip
_OURS_BY_NAME: Final = {entry.name: entry for entry in CLASSES if entry.path.startswith(OURS)}


def offered(module: str) -> list[KnownClass]:
    """The classes of a library's module that forms offer, in their order."""
    return [entry for entry in CLASSES if entry.offered and entry.path == f"{module}.{entry.name}"]


def ours(path: str) -> KnownClass | None:
    """The class of ours that a class path means, wherever the path says that it is; None for any other text."""
    if not path.startswith(OURS) or CLASS_PATH.fullmatch(path) is None:
        return None
    return _OURS_BY_NAME.get(path.rpartition(".")[2])


def path_today(path: str) -> str:
    """A class path of ours by where the class is today; any other text unchanged."""
    entry = ours(path)
    return path if entry is None else entry.path


def paths_today(value: Any) -> Any:
    """`value`, a config or a part of one, in which every class path of ours is that of today."""
    if isinstance(value, str):
        return path_today(value)
    if isinstance(value, Mapping):
        return {key: paths_today(item) for key, item in value.items()}
    return [paths_today(item) for item in value] if isinstance(value, list | tuple) else value


def paths_hashed(content: Any) -> Any:
    """`content` in which every `class_path` of ours is what hashes have in its place."""
    if isinstance(content, Mapping):
        return {
            key: _hashed(item) if key == "class_path" and isinstance(item, str) else paths_hashed(item)
            for key, item in content.items()
        }
    return [paths_hashed(item) for item in content] if isinstance(content, list | tuple) else content


def _hashed(path: str) -> str:
    if (entry := ours(path)) is not None:
        return entry.path_in_hashes
    return path.rpartition(".")[2] if path.startswith(OURS) else path
