"""What is wrong with a config, found without torch, before anything starts: form and command line ask here."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem, node_rank
from scalebook.training.base.files import yaml
from scalebook.training.experiments import logged_metrics, model_conflicts
from scalebook.training.experiments import validation_schedule as validations
from scalebook.training.experiments.classes import (
    GROUP_OF_KEY,
    few_strangers,
    mapping,
    positive,
    suggestion,
    within,
)
from scalebook.training.experiments.confinement import Confinement
from scalebook.training.experiments.data_paths import data_path_problems
from scalebook.training.experiments.description import ClassInfo, Description, Field, Group
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import check_args, check_reference, check_value, quoted_value
from scalebook.training.experiments.lr_scaling import FIELDS, KEY, NO_BATCH
from scalebook.training.experiments.strategies import ModelParallelSettings

WORDS: Final = {"model": "model", "data": "data set", "optimizer": "optimizer", "lr_scheduler": "scheduler"}
SEED: Final = Field("seed_everything", "int", "Seed of the first run.", default=1, minimum=0, maximum=2**32 - 1)
PROFILERS: Final = ("simple", "advanced", "pytorch")
THREADS: Final = Field("threads", "int", "CPU threads of each worker.", default=1, minimum=1, maximum=1024)
MATMUL: Final = Field(
    "float32_matmul_precision",
    "enum",
    "Precision of float32 matrix products. `highest`: float32, torch's own default. `high`: TF32 on a GPU that "
    "supports it, which has 10 bits of mantissa instead of 23 and is several times as fast. `medium`: bfloat16 where "
    "that is faster, also on a CPU. Convolutions on a GPU use TF32 in any case.",
    nullable=True,
    choices=["highest", "high", "medium"],
)
NOISE_SCALE: Final = Field(
    "noise_scale",
    "bool",
    "During training, estimates the largest batch size that is still efficient. This makes training a few percent "
    "slower.",
    default=False,
)
GPU_SHARE: Final = Field(
    "gpu_share", "float",
    "Share of a GPU's memory that this run may use. Runs that set a share can use the same GPU at the same time.",
    default=1.0, minimum=0.01, maximum=1.0,
)  # fmt: skip
OF_THE_RUN: Final = {field.name: field for field in (THREADS, MATMUL, NOISE_SCALE, GPU_SHARE)}


def validate(
    experiment: Experiment,
    *,
    partial: bool = False,
    cores: int | None = None,
    typed: bool = False,
    queued: bool = True,
) -> list[Problem]:
    """All problems of an experiment, in the order of its keys; `partial` allows what is required to be missing.

    Warnings are settings without effect, and workers without a core of their own where `cores` tells how many there
    are. An experiment without errors is one that LightningCLI accepts, as far as the description tells; what only the
    classes themselves can refuse is found when they are built. `typed`: on a command line, so that a run of it is not
    one of the queue; see scalebook.training.experiments.confinement. `queued`: whether the queue is to run it as it is.
    """
    if experiment.broken is not None:
        return [experiment.broken]
    config, description = experiment.written, experiment.description
    problems = _top_level(experiment)
    problems += _trainer(config.get("trainer"), description)
    for key, group in GROUP_OF_KEY.items():
        if config.get(key) is not None:
            problems += check_class(key, config[key], group, description, partial=partial)
        elif key in ("model", "data") and not partial:
            names = sorted(info.name for info in getattr(description, group))
            problems.append(
                Problem("missing", key, "is missing", f"Use one of these {WORDS[key]}s: {', '.join(names)}.")
            )
    problems += Confinement(experiment.written).checkpoint_problems()
    problems += experiment.strategy.problems()
    problems += _noise_problems(experiment)
    problems += model_conflicts.problems(experiment)
    problems += rate_problems(experiment)
    problems += validations.problems(experiment)
    problems += logged_metrics.monitor_problems(experiment)
    problems += _without_effect(experiment) + _shared(experiment)
    if queued and not typed:
        problems += _queue_problems(experiment) + data_path_problems(experiment)
    if not description.trusted:
        problems += _confined(experiment, problems, typed)
    return problems + (_crowded(experiment, cores) if cores else [])


def _confined(experiment: Experiment, problems: list[Problem], typed: bool) -> Iterator[Problem]:
    """What a folder that is not trusted may not ask for, beyond the problems that are known already.

    Without errors it is looked for in what the runner will be given: the completed config.
    """
    is_right = all(problem.severity == "warning" for problem in problems)
    confinement = Confinement(experiment.completed if is_right else experiment.written)
    if not typed:
        keys = [problem.key for problem in problems]
        for problem in confinement.class_problems():
            if not any(problem.key == key or problem.key.startswith(f"{key}.") for key in keys):
                yield problem
    yield from confinement.path_problems(Path(experiment.description.folder), Path.cwd() if typed else None)


def require(experiment: Experiment, *, typed: bool = False, queued: bool = True) -> None:
    """Raise ConfigError for the first error of an experiment; warnings pass. See `validate`."""
    for problem in validate(experiment, typed=typed, queued=queued):
        if problem.severity == "error":
            raise ConfigError.of(problem)


def check_class(
    key: str, value: Any, group: Group, description: Description, *, partial: bool = False
) -> list[Problem]:
    """What is wrong with the class named at `key` and with its arguments."""
    reference, problems = check_reference(key, value, f"{key}: {{class_path: ..., init_args: {{...}}}}")
    if reference.name is None:
        return problems
    if (info := reference.info(group, description)) is None:
        return [_unknown_class(key, reference.name, group, description)]
    problems = [*_also_called(key, reference.name, info, group, description), *problems]
    if reference.args is None:
        return problems
    return problems + check_args(f"{key}.init_args", reference.args, info.fields, of=info.name, partial=partial)


def _also_called(key: str, name: str, info: ClassInfo, group: Group, description: Description) -> list[Problem]:
    """A warning where another class has the short `name` that stands for `info`."""
    others = [other.class_path for other in getattr(description, group) if other.class_path.endswith(f".{name}")]
    if name != info.name or len(others) < 2:
        return []
    return [
        Problem(
            "ambiguous-class",
            key,
            f"is {quoted_value(name)}, which could be {' or '.join(others)}; {info.class_path} is used",
            "Use the full path of the class that you mean.",
            "warning",
        )
    ]


def _unknown_class(key: str, name: str, group: Group, description: Description) -> Problem:
    what, where = WORDS.get(key, "strategy"), ""
    if key in ("model", "data") and (refused := description.refusal(name)) is not None:
        return Problem("refused-class", key, f"names {quoted_value(name)}, which {refused.why}", refused.fix)
    entries = getattr(description, group)
    names = [entry.config_value or entry.name for entry in entries]
    fix = suggestion(name, names)
    module = name.rpartition(".")[0]
    if key in ("model", "data") and module:
        if import_problems := [
            problem for problem in description.problems if within(name, [problem.partition(":")[0]])
        ]:
            fix = f"The module of this class was not imported: {import_problems[0]}"
        elif within(f"{module}.", description.packages):
            own = [entry.name for entry in entries if entry.source == "user"]
            where = " in the modules of scalebook.toml"
            fix = suggestion(name, own) or "The class must be a LightningModule or a LightningDataModule."
        elif not fix.startswith("Did"):
            fix = f'{fix} For your own class, add its module to scalebook.toml: modules = ["..."].'
    return Problem("unknown-class", key, f"unknown {what} {quoted_value(name)}{where}", fix)


def _top_level(experiment: Experiment) -> list[Problem]:
    config, more = few_strangers(experiment.written, yaml.TOP_KEYS)
    problems = (
        [Problem("unknown-key", "config", f"has {more} unknown keys in addition to those listed", "Remove them.")]
        if more
        else []
    )
    for key, value in config.items():
        if key == "repeats":
            problems.append(
                Problem("misplaced-key", key, "does not belong in the config", "Put it next to `config:` in the cell.")
            )
        elif key not in yaml.TOP_KEYS:
            problems.append(
                Problem("unknown-key", str(key), "is not a key of a config", suggestion(str(key), yaml.TOP_KEYS))
            )
        elif value is None:
            continue  # as if the key were not there
        elif key == "seed_everything" and not isinstance(value, bool):
            problems += [problem for problem in [check_value(key, value, SEED)] if problem]
        elif key in OF_THE_RUN:
            problems += [problem for problem in [check_value(key, value, OF_THE_RUN[key])] if problem]
    return problems


def _trainer(value: Any, description: Description) -> list[Problem]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [
            Problem(
                "wrong-type", "trainer", f"is {quoted_value(value)}, not a mapping", "Use one `name: value` per line."
            )
        ]
    settings = {key: item for key, item in value.items() if key != "strategy"}
    problems = check_args("trainer", settings, description.trainer)
    if isinstance(value.get("profiler"), str) and value["profiler"] not in PROFILERS:
        fix = suggestion(value["profiler"], PROFILERS)
        why = f"is {quoted_value(value['profiler'])}, which is not a profiler"
        problems.append(Problem("unknown-value", "trainer.profiler", why, fix))
    if value.get("strategy") is not None:
        problems += check_class("trainer.strategy", value["strategy"], "strategies", description)
    return problems


def _shared(experiment: Experiment) -> list[Problem]:
    """A share of a GPU where no GPU is asked for, or more than one."""
    if experiment.gpu_share == 1:
        return []
    said = f"is {quoted_value(experiment.gpu_share)}"
    if experiment.accelerator == "cpu":
        return [
            Problem(
                "contradiction",
                "gpu_share",
                f"{said}, but the run uses no GPU",
                "Remove it, or set accelerator: auto.",
            )
        ]
    gpus = experiment.strategy.devices * experiment.strategy.nodes
    if gpus > 1:
        why = f"{said}, but the run uses {gpus} GPUs, and only runs on one GPU can share a GPU"
        fix = "Set trainer.devices: 1 (init_args.workers of AsyncPS can be larger), or remove gpu_share."
        return [Problem("contradiction", "gpu_share", why, fix)]
    return []


def _without_effect(experiment: Experiment) -> list[Problem]:
    problems: list[Problem] = []
    model = experiment.model.info
    if model is not None and model.own_optimizer:
        problems += [
            Problem(
                "no-effect",
                key,
                f"has no effect, because {model.name} has its own configure_optimizers",
                "Remove it.",
                "warning",
            )
            for key in ("optimizer", "lr_scheduler")
            if experiment.written.get(key) is not None
        ]
    strategy = experiment.strategy
    workers, devices = strategy.args.get("workers"), mapping(experiment.written.get("trainer")).get("devices")
    both = isinstance(workers, int) and isinstance(devices, int) and not strategy.is_simulated
    if both and workers != devices and experiment.accelerator == "cpu":
        problems.append(
            Problem(
                "no-effect",
                "trainer.devices",
                f"has no effect on a CPU, because the strategy has {workers} workers",
                f"Remove it, or use {workers}.",
                "warning",
            )
        )
    return problems


def _noise_problems(experiment: Experiment) -> list[Problem]:
    if not (isinstance(experiment.strategy, ModelParallelSettings) and experiment.written.get(NOISE_SCALE.name)):
        return []
    return [
        Problem(
            "contradiction", NOISE_SCALE.name, "needs a whole copy of the model, but the model is split", "Use false."
        )
    ]


def _queue_problems(experiment: Experiment) -> list[Problem]:
    """Problems of an experiment on several nodes that is to be a job of a queue with one node."""
    nodes = positive(experiment.trainer.get("num_nodes")) or 1
    if nodes == 1 or experiment.description.clustered:
        return []
    why = f"is {nodes}, but jobs of this folder run on one machine"
    fix = (
        "Add [cluster] to scalebook.toml (see docs/how-to/cluster.md), or start the run on each node with torchrun "
        "or srun and `scalebook fit -c FILE`."
    )
    return [Problem("no-cluster", node_rank.NODES, why, fix)]


def _crowded(experiment: Experiment, cores: int) -> list[Problem]:
    """Workers that would take turns on the cores: they run, and their times say little."""
    threads, processes = experiment.threads, experiment.strategy.processes
    if threads * processes <= cores:
        return []
    each = f"{threads} threads" if threads > 1 else "1 thread"
    return [
        Problem(
            "crowded",
            "threads" if threads > 1 else "trainer.devices",
            f"is more than this machine has, because {processes} workers with {each} each would share {cores} cores",
            "The measured times and staleness would reflect an overloaded machine. To measure speed, use fewer.",
            "warning",
        )
    ]


# --- of learning rates ------------------------------------------------------------------------------------------------


def rate_problems(experiment: Experiment) -> list[Problem]:
    """Errors and warnings about `lr_scaling`; none where the config has no such key."""
    settings = experiment.written.get(KEY)
    if settings is None:
        return []
    if not isinstance(settings, Mapping):
        fix = f"Set {KEY}: {{rule: linear, per: 256, warmup_epochs: 1}}."
        return [Problem("wrong-type", KEY, f"is {quoted_value(settings)}, not a mapping", fix)]
    fields = {field.name: field for field in FIELDS}
    findings: list[Problem] = []
    for name, value in settings.items():
        if name not in fields:
            findings.append(
                Problem("unknown-argument", f"{KEY}.{name}", "is not an argument", suggestion(str(name), fields))
            )
        elif problem := check_value(f"{KEY}.{name}", value, fields[name]):
            findings.append(problem)
        elif value == math.inf:
            findings.append(Problem("out-of-bounds", f"{KEY}.{name}", "is infinite", "Use a number of epochs."))
    return findings or _impossible_rate(experiment)


def _impossible_rate(experiment: Experiment) -> list[Problem]:
    """What makes a scaling that is well written impossible for this config."""
    scaling, samples = experiment.scaling, experiment.batch.averaged
    assert scaling is not None
    if scaling.rule == "none":
        return [_idle_rate("rule none does not change the rate")] if scaling.warmup_epochs else []
    if samples is None:
        if experiment.data.name is None:
            return []
        return [Problem("missing", KEY, NO_BATCH, "Remove it, or set rule: none.")]
    if not scaling.warmup_epochs:
        return []
    if scaling.factor(samples) <= 1:
        return [
            _idle_rate(
                f"a batch of {samples:,} does not raise a learning rate that is meant for a batch of {scaling.per:,}"
            )
        ]
    epochs = experiment.trainer.get("max_epochs")
    if isinstance(epochs, int) and 0 < epochs <= scaling.warmup_epochs:
        which = f"{KEY}.warmup_epochs"
        fix = "Use fewer warm-up epochs, or train longer."
        return [
            Problem(
                "no-effect",
                which,
                f"is {scaling.warmup_epochs:g}, but the run ends after {epochs} epochs",
                fix,
                "warning",
            )
        ]
    return []


def _idle_rate(why: str) -> Problem:
    return Problem("no-effect", f"{KEY}.warmup_epochs", f"has no effect, because {why}", "Remove it.", "warning")
