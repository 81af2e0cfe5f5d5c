"""Lightning's names for the strategies: from the package `lightning` or, if `scalebook.pytorch_lightning` is imported
first, from `pytorch_lightning`.

Both packages have the same code under two names, but their classes are not interchangeable. A process has the
strategies for one of them.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or "scalebook.pytorch_lightning" not in sys.modules:
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning.fabric.strategies.launchers.multiprocessing import _check_bad_cuda_fork
    from lightning.fabric.utilities import move_data_to_device
    from lightning.fabric.utilities.data import _auto_add_worker_init_fn, has_iterable_dataset, sized_len
    from lightning.fabric.utilities.init import _materialize_distributed_module
    from lightning.fabric.utilities.rank_zero import rank_zero_only
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import (
        BaseFinetuning,
        BatchSizeFinder,
        Checkpoint,
        EarlyStopping,
        GradientAccumulationScheduler,
        LearningRateFinder,
        ModelCheckpoint,
        ModelPruning,
        StochasticWeightAveraging,
        Timer,
        TQDMProgressBar,
        WeightAveraging,
    )
    from lightning.pytorch.core.optimizer import _MockOptimizer
    from lightning.pytorch.loggers.csv_logs import CSVLogger, ExperimentWriter
    from lightning.pytorch.loggers.logger import DummyLogger
    from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher
    from lightning.pytorch.loops.progress import _ReadyCompletedTracker
    from lightning.pytorch.loops.utilities import _is_max_limit_reached
    from lightning.pytorch.plugins.precision import BitsandbytesPrecision, TransformerEnginePrecision
    from lightning.pytorch.profilers import PassThroughProfiler, Profiler, PyTorchProfiler, SimpleProfiler
    from lightning.pytorch.strategies import (
        DDPStrategy,
        ModelParallelStrategy,
        ParallelStrategy,
        SingleDeviceStrategy,
        StrategyRegistry,
    )
    from lightning.pytorch.strategies.launchers.launcher import _Launcher
    from lightning.pytorch.trainer import call
    from lightning.pytorch.trainer.call import _call_teardown_hook, _interrupt
    from lightning.pytorch.trainer.connectors.data_connector import _get_distributed_sampler, _worker_check
    from lightning.pytorch.trainer.connectors.logger_connector.result import (
        _Metadata,
        _ResultCollection,
        _ResultMetric,
        _Sync,
    )
    from lightning.pytorch.trainer.states import TrainerFn, TrainerState, TrainerStatus
    from lightning.pytorch.tuner.lr_finder import _determine_lr_attr_name
    from lightning.pytorch.utilities import GradClipAlgorithmType, rank_zero_info, rank_zero_warn
    from lightning.pytorch.utilities.exceptions import _TunerExitException
    from lightning.pytorch.utilities.model_helpers import is_overridden
    from lightning.pytorch.utilities.seed import isolate_rng
    from lightning.pytorch.utilities.types import LRSchedulerConfig
else:
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning_fabric.strategies.launchers.multiprocessing import _check_bad_cuda_fork
    from lightning_fabric.utilities import move_data_to_device
    from lightning_fabric.utilities.data import _auto_add_worker_init_fn, has_iterable_dataset, sized_len
    from lightning_fabric.utilities.init import _materialize_distributed_module
    from lightning_fabric.utilities.rank_zero import rank_zero_only
    from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
    from pytorch_lightning.callbacks import (
        BaseFinetuning,
        BatchSizeFinder,
        Checkpoint,
        EarlyStopping,
        GradientAccumulationScheduler,
        LearningRateFinder,
        ModelCheckpoint,
        ModelPruning,
        StochasticWeightAveraging,
        Timer,
        TQDMProgressBar,
        WeightAveraging,
    )
    from pytorch_lightning.core.optimizer import _MockOptimizer
    from pytorch_lightning.loggers.csv_logs import CSVLogger, ExperimentWriter
    from pytorch_lightning.loggers.logger import DummyLogger
    from pytorch_lightning.loops.fetchers import _DataLoaderIterDataFetcher
    from pytorch_lightning.loops.progress import _ReadyCompletedTracker
    from pytorch_lightning.loops.utilities import _is_max_limit_reached
    from pytorch_lightning.plugins.precision import BitsandbytesPrecision, TransformerEnginePrecision
    from pytorch_lightning.profilers import PassThroughProfiler, Profiler, PyTorchProfiler, SimpleProfiler
    from pytorch_lightning.strategies import (
        DDPStrategy,
        ModelParallelStrategy,
        ParallelStrategy,
        SingleDeviceStrategy,
        StrategyRegistry,
    )
    from pytorch_lightning.strategies.launchers.launcher import _Launcher
    from pytorch_lightning.trainer import call
    from pytorch_lightning.trainer.call import _call_teardown_hook, _interrupt
    from pytorch_lightning.trainer.connectors.data_connector import _get_distributed_sampler, _worker_check
    from pytorch_lightning.trainer.connectors.logger_connector.result import (
        _Metadata,
        _ResultCollection,
        _ResultMetric,
        _Sync,
    )
    from pytorch_lightning.trainer.states import TrainerFn, TrainerState, TrainerStatus
    from pytorch_lightning.tuner.lr_finder import _determine_lr_attr_name
    from pytorch_lightning.utilities import GradClipAlgorithmType, rank_zero_info, rank_zero_warn
    from pytorch_lightning.utilities.exceptions import _TunerExitException
    from pytorch_lightning.utilities.model_helpers import is_overridden
    from pytorch_lightning.utilities.seed import isolate_rng
    from pytorch_lightning.utilities.types import LRSchedulerConfig

PACKAGE: Final = Trainer.__module__.partition(".")[0]
OTHER, OTHER_INTERFACE = ("pytorch_lightning", "scalebook.pytorch_lightning")
if PACKAGE == OTHER:
    OTHER, OTHER_INTERFACE = "lightning", "scalebook"
