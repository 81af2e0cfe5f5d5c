"""LightningCLI with Scalebook's defaults: it runs a config, in a job or in the foreground."""

import logging
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, MethodType
from typing import Any, Final, Literal, NamedTuple

import torch
from jsonargparse import ArgumentError
from jsonargparse.typing import PositiveInt
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, instantiate_class
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric
from typing_extensions import override

import scalebook.training.lightning
import scalebook.training.zoo.data
import scalebook.training.zoo.models
import scalebook.training.zoo.optimizers
from scalebook.training.base import ConfigError
from scalebook.training.callbacks import DataClock, GpuShare, Threads, default_callbacks, random_state, rate_callbacks
from scalebook.training.cli.model_making import parameters_of
from scalebook.training.cli.tee import TALKERS
from scalebook.training.experiments import (
    GPU_SHARE,
    MATMUL,
    NOISE_SCALE,
    NOW,
    THREADS,
    alike_digests,
    as_config_errors,
    lr_scaling,
    paths_today,
    problem_of,
    unfit_optimizer,
)
from scalebook.training.jobs import JobFolder
from scalebook.training.lightning import EngineStrategy, ForkedGroup, prepare_for_forks
from scalebook.training.tracking import RunLogger, names, names_class
from scalebook.training.zoo import shuffled_by_epochs

PARSED: Final = re.compile(r'Parser key "([^"]+)"')
NOT_ACCEPTED: Final = re.compile(r"(?:Option|option) '([^']+)' is not accepted|does not accept option '([^']+)'")
CLASS: Final = re.compile(r"Problem with given class_path '([^']+)'")
MISSING: Final = re.compile(r"required(?: but not included)?: ?(.+)|Key \"([^\"]+)\" is required")
SUBCOMMAND: Final = re.compile(r"^(fit|validate|test|predict)\.")


def translated(text: str) -> ConfigError:
    """The parser's error message as a ConfigError."""
    keys = [
        SUBCOMMAND.sub("", key) for key in PARSED.findall(text) if key not in ("fit", "validate", "test", "predict")
    ]
    key = keys[0] if keys else "config"
    classes = CLASS.findall(text)
    if unknown := NOT_ACCEPTED.search(text):
        name = unknown.group(1) or unknown.group(2)
        owner = f"{classes[-1]} has no argument with that name" if classes else "unknown key"
        former = NOW.get((classes[-1].rpartition(".")[2], name)) if classes else None
        return ConfigError(f"{key}.{name}", owner, former or "Remove or rename it.")
    if missing := MISSING.search(text):
        what = (missing.group(1) or missing.group(2)).strip()
        owner = classes[-1] if classes else "the config"
        return ConfigError(key, f"{owner} needs {what}", "Add it.")
    reasons = [
        line.strip(" -\t") for line in text.splitlines() if re.match(r"\s*(- )?(Expected|Import|No module)", line)
    ]
    reasons = [line for line in reasons if "NoneType" not in line] or [text.strip().splitlines()[-1].strip()]
    value = re.search(r"Given value: (.+)", text)
    prefix = f"is {value.group(1)[:60]}: " if value else ""
    return ConfigError(".".join(keys) if len(keys) > 1 else key, f"{prefix}{reasons[-1]}", "Use a value of that type.")


REMEDY: Final = (
    "A checkpoint includes the model's hyper-parameters. Exclude those that are objects with "
    "`self.save_hyperparameters(ignore=[...])`, and train again. If you trust the file, you can also load it once in "
    "a script with `torch.load(..., weights_only=False)` and save only what you need."
)


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class PlainCheckpoints(TorchCheckpointIO):
    """Lightning's checkpoint reading and writing, but always with `weights_only=True`.

    ConfigError for a file that cannot be read so. `said`: the arguments of the model and of the data in the config. An
    argument that names a class is saved among the hyper-parameters as the config has it, not as the object made from
    it, with the function by which Lightning's `load_from_checkpoint` makes that again.
    """

    def __init__(self, model: Mapping[str, Any] = NOTHING, data: Mapping[str, Any] = NOTHING) -> None:
        super().__init__()
        said = {
            LightningModule.CHECKPOINT_HYPER_PARAMS_KEY: model,
            LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY: data,
        }
        self.said = {
            key: {name: value for name, value in arguments.items() if names_class(value)}
            for key, arguments in said.items()
        }

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        checkpoint = {**checkpoint}
        for key, said in self.said.items():
            hparams = checkpoint.get(key)
            if isinstance(hparams, Mapping) and hparams.keys() & said.keys():
                plain = {name: said.get(name, value) for name, value in hparams.items()}
                checkpoint[key] = {**plain, "_instantiator": f"{LightningCLI.__module__}.instantiate_module"}
        super().save_checkpoint(checkpoint, path, storage_options)

    @override
    def load_checkpoint(
        self,
        path: Any,
        map_location: Callable[..., Any] | None = lambda storage, _: storage,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        try:
            read: dict[str, Any] = super().load_checkpoint(path, map_location, weights_only=True)
        except pickle.UnpicklingError as error:
            match = re.search(r"GLOBAL (\S+)", str(error))
            code = f" It refers to {match.group(1)}, which is code." if match else ""
            what = f"{path} contains more than tensors, numbers and strings, so it cannot be loaded safely.{code}"
            raise ConfigError("ckpt_path", what, REMEDY) from None
        for key in self.said.keys() & read.keys():
            read[key] = paths_today(read[key])
        return read


PROFILERS: Final[dict[str, type[Profiler]]] = {
    "simple": SimpleProfiler,
    "advanced": AdvancedProfiler,
    "pytorch": PyTorchProfiler,
}
QUIET: Final = (
    ".*does not have many workers which may be a bottleneck.*",
    ".*LeafSpec.*is deprecated.*",
    ".*callbacks used to create the checkpoint need to be provided.*",
    ".*smaller than the logging interval.*",
)
"""Warnings of libraries about intended behaviour: the worker itself serves data from memory."""
PLAIN: Final[dict[str, Any]] = {
    "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
    "data": {"class_path": "scalebook.training.zoo.data.Digits"},
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
}
"""A config in which all of Scalebook's arguments have their defaults."""
CHATTER: Final = ("Tip:", "GPU available", "TPU available", "weights_only", "Seed set to", "Tensor Cores")


class _Parsers(NamedTuple):
    """The parsers of one command, as LightningCLI stores them."""

    parser: LightningArgumentParser
    by_command: dict[str, LightningArgumentParser]
    arguments: dict[str, list[str]]


_PARSERS: Final[dict[str, _Parsers]] = {}


class TrainingCLI(LightningCLI):
    """Runs one config, given as a dict; every job and every command does it with this class.

    With a `job` the run is recorded: Scalebook's logger, callbacks and root folder are added to those of the config.
    Without one nothing is written. Raises ConfigError for a config that LightningCLI's parser refuses.
    """

    def __init__(
        self, command: str, config: Mapping[str, Any], job: JobFolder | None, *, run: bool = True, modules: str = ""
    ) -> None:
        """`modules`: the record of the user's own modules, which are copied into the job's folder."""
        self.command, self.job, self.modules = command, job, modules
        self.run = run
        if run:
            torch.set_num_threads(1)  # until the workers are forked; then Threads
        scalebook.training.lightning.register()
        with as_config_errors():
            super().__init__(
                LightningModule,
                LightningDataModule,
                save_config_callback=None,
                seed_everything_default=1,
                parser_kwargs={"exit_on_error": False},
                subclass_mode_model=True,
                subclass_mode_data=True,
                args={"subcommand": command, command: paths_today(config)},
                load_from_checkpoint_support=False,
            )

    @classmethod
    def prepare(cls) -> None:
        """Cache what a `fit` in this process, or in one forked from it, needs: its parser, the state of a first parse,
        and the versions that the first metric of torchmetrics looks up."""
        prepare_for_forks()
        cls("fit", PLAIN, None, run=False)
        MeanMetric()

    @override
    def setup_parser(
        self, add_subcommands: bool, main_kwargs: dict[str, Any], subparser_kwargs: dict[str, Any]
    ) -> None:
        """Make the parsers once in a process: the signatures of Trainer, models and data do not change."""
        if self.command not in _PARSERS:
            super().setup_parser(add_subcommands, main_kwargs, subparser_kwargs)
            _PARSERS[self.command] = _Parsers(self.parser, self._subcommand_parsers, self._subcommand_method_arguments)
        self.parser, self._subcommand_parsers, self._subcommand_method_arguments = _PARSERS[self.command]

    @override
    def _set_seed(self) -> None:
        if self.run:
            super()._set_seed()

    @override
    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]  # a static method there
        """Only the command that runs: parsers for all four take four times as long (0.2 s)."""
        return {self.command: {*LightningCLI.subcommands()[self.command], "weights_only"}}

    @override
    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        """Add `weights_only`, so that no code in a checkpoint can run."""
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--threads", type=PositiveInt, default=THREADS.default, help=THREADS.help)
        parser.add_argument("--gpu_share", type=float, default=GPU_SHARE.default, help=GPU_SHARE.help)
        precisions = Literal["highest", "high", "medium"] | None
        parser.add_argument("--float32_matmul_precision", type=precisions, default=None, help=MATMUL.help)
        parser.add_argument(
            "--lr_scaling",
            type=lr_scaling.RateScaling | None,
            default=None,
            help="How the learning rate scales with the batch size",
        )
        parser.add_argument("--noise_scale", type=bool, default=NOISE_SCALE.default, help=NOISE_SCALE.help)

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        with config_errors():
            self.config = parser.parse_object(args)

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the config defines the model, and the checkpoint of a resumed run does not change it."""

    @override
    def instantiate_classes(self) -> None:
        if self.run:
            prepare_for_forks()  # before the user's model exists, and before a Trainer has counted GPUs
            super().instantiate_classes()

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Give the model a `configure_optimizers` that makes the config's optimizer. It does so when Lightning calls
        it, because a model may create its layers late.

        A model that has its own `configure_optimizers` keeps it.
        """
        optimizer_init = self._get(self.config_init, "optimizer")
        scheduler_init = self._get(self.config_init, "lr_scheduler")
        if not optimizer_init or is_overridden("configure_optimizers", self.model, LightningModule):
            return

        def configure_optimizers(module: LightningModule) -> Any:
            name = optimizer_init["class_path"]
            if why := unfit_optimizer(
                parameters_of(module), name, optimizer_init.get("init_args", {}), is_server=False
            ):
                raise ConfigError.of(problem_of(why))
            optimizer = instantiate_class((module.parameters(),), optimizer_init)
            scheduler = instantiate_class(optimizer, scheduler_init) if scheduler_init else None
            return self.configure_optimizers(module, optimizer, scheduler)

        self.model.configure_optimizers = MethodType(configure_optimizers, self.model)

    def _run_subcommand(self, subcommand: str) -> None:
        if self.run:
            super()._run_subcommand(subcommand)

    @override
    def after_instantiate_classes(self) -> None:
        """Replace numbers of jsonargparse's own types in the model's hyper-parameters by plain ones.

        In a checkpoint, torch would refuse to load them. Also passes digests of the config to the strategy, which
        compares them between nodes.
        """
        if self.run:
            _shuffle_alike(self.trainer)
            if isinstance(self.trainer.strategy, ForkedGroup | EngineStrategy):
                self.trainer.strategy.started_with.update(alike_digests(self.config[self.command].as_dict()))
            hparams = self.model.hparams
            for name, value in hparams.items():
                plain = next((kind for kind in (int, float, str) if isinstance(value, kind)), None)
                if plain is not None and not isinstance(value, bool):
                    hparams[name] = plain(value)

    @override
    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        trainer_config = self._get(self.config_init, "trainer", default={})
        threads = self._get(self.config_init, "threads", default=1)
        if (precision := self._get(self.config_init, "float32_matmul_precision")) is not None:
            torch.set_float32_matmul_precision(precision)  # workers inherit it, and modules of the user's came before
        if self.job is None:
            checkpoints = any(isinstance(one, Checkpoint) for one in _listed(trainer_config["callbacks"]))
            loggers = _loggers(trainer_config["logger"]) or False
            more: dict[str, Any] = {"logger": loggers, "enable_checkpointing": checkpoints}
            callbacks: list[Callback] = [Threads(threads)]
        else:
            more, callbacks = self._recorded(self.job, trainer_config, threads)
        if trainer_config["enable_progress_bar"] is None:
            bars = any(isinstance(one, ProgressBar) for one in _listed(trainer_config["callbacks"]))
            more["enable_progress_bar"] = sys.stdout.isatty() or bars
        if (share := self._get(self.config_init, "gpu_share", default=1.0)) < 1:
            callbacks.append(GpuShare(share))
        callbacks += rate_callbacks(self._get(self.config_init, lr_scaling.KEY), self._get(self.config, "data"))
        plugins = _listed(trainer_config["plugins"])
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            more["plugins"] = [*plugins, PlainCheckpoints(*self._arguments())]
        more["callbacks"] = [*_listed(trainer_config["callbacks"]), *callbacks]
        return super().instantiate_trainer(**{**more, **kwargs})

    def _arguments(self) -> list[dict[str, Any]]:
        """The arguments of the model, and of the data, in the config."""
        parts = [self._get(self.config, key) for key in ("model", "data")]
        said = [part.get("init_args") if part else None for part in parts]
        return [arguments.as_dict() if arguments else {} for arguments in said]

    def _recorded(
        self, job: JobFolder, settings: Mapping[str, Any], threads: int
    ) -> tuple[dict[str, Any], list[Callback]]:
        """Arguments for the Trainer of a recorded run, and its callbacks."""
        clock = DataClock(_profiler(settings["profiler"], job))
        files = [job.config, *sorted(path for path in (job.path / names.MODULES).rglob("*.py"))]
        tags = {names.TAG_MODULES: self.modules} if self.modules else {}
        tags[names.TAG_RANDOM_MADE] = random_state()
        seed = self._get(self.config, "seed_everything")
        if type(seed) is int and torch.initial_seed() != seed:
            tags[names.TAG_OWN_SEED] = str(torch.initial_seed())
            print(
                "scalebook: warning: the model or the data calls seed_everything or manual_seed itself, with the seed "
                f"{torch.initial_seed()}, so `seed_everything: {seed}` does not determine the random numbers of this "
                "run. Remove that call.",
                flush=True,
            )
        ours = RunLogger(job.tracking_uri(), job.id, job.path, files, tags, self._arguments())
        more: dict[str, Any] = {
            "logger": [*_loggers(settings["logger"]), ours],
            "default_root_dir": str(job.path),
            "profiler": clock,
        }
        callbacks = default_callbacks(
            job,
            clock,
            threads=threads,
            lines=not (settings["enable_progress_bar"] or sys.stdout.isatty()),
            checkpoints=settings["enable_checkpointing"] is not False,
            noise=self._get(self.config_init, "noise_scale", default=False),
        )
        return more, callbacks


def _listed(value: Any) -> list[Any]:
    """The value as a list: itself, a single item, or nothing."""
    return value if isinstance(value, list) else [value] if value else []


def _loggers(value: Any) -> list[Logger]:
    if isinstance(value, Logger):
        return [value]
    return [logger for logger in value if isinstance(logger, Logger)] if isinstance(value, list) else []


def _shuffle_alike(trainer: Trainer) -> None:
    """Give training loaders that shuffle the same order with one process as with several: of several, Lightning and
    AsyncPS shuffle by seed and epoch alone, whatever the loader's sampler has drawn."""
    process = trainer.strategy.process_dataloader

    def processed(dataloader: object) -> object:
        divides = trainer._accelerator_connector.use_distributed_sampler
        if trainer.training and divides and isinstance(dataloader, DataLoader):
            dataloader = shuffled_by_epochs(dataloader)
        return process(dataloader)

    trainer.strategy.process_dataloader = processed  # type: ignore[method-assign]


@contextmanager
def config_errors() -> Iterator[None]:
    """Turn errors of jsonargparse into ConfigErrors."""
    try:
        yield
    except ArgumentError as error:
        raise translated(str(error)) from error


def quieten() -> None:
    """Filter messages of Lightning that a user does not need or cannot act on."""
    for name in TALKERS:
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_worth_saying)
    for message in QUIET:
        warnings.filterwarnings("ignore", message)


def _worth_saying(record: logging.LogRecord) -> bool:
    return not any(words in record.getMessage() for words in CHATTER)


def _profiler(value: Any, job: JobFolder) -> Profiler | None:
    """The profiler, made from its name if it is one; it writes its files into the job's folder. ConfigError for an
    unknown name."""
    if not isinstance(value, str):
        return value if isinstance(value, Profiler) else None
    if value not in PROFILERS:
        raise ConfigError("trainer.profiler", f"is {value!r}", f"Use one of {', '.join(PROFILERS)}.")
    return PROFILERS[value](dirpath=str(job.path))
