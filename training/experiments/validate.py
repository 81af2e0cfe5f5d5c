"""What is wrong with a config, found without torch, before anything starts: form and command line ask here."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.errors import ConfigError, Problem
from scalebook.training.base.files.yaml import TOP_KEYS
from scalebook.training.engine.rules.clock_settings import read_clock
from scalebook.training.engine.rules.contradictions import ARGUMENTS, FAR, CheckedSettings, contradictions, nobody_left
from scalebook.training.engine.rules.exchanges import EXCHANGES
from scalebook.training.engine.rules.facts import DampingFacts, LocalFacts, RuleFacts
from scalebook.training.engine.rules.peering import ONE_MACHINE, Peering
from scalebook.training.engine.rules.run_limits import misfit, read_limits, read_range
from scalebook.training.engine.rules.topologies import TOPOLOGIES, Complete, OnePeerExponential
from scalebook.training.engine.rules.update_rules import Async
from scalebook.training.experiments import codec_problems, logged_metrics, sparse_tables, validations
from scalebook.training.experiments.classes import (
    GROUP_OF_KEY,
    MODEL_PARALLEL,
    few_strangers,
    mapping,
    read_class,
    suggestion,
    within,
)
from scalebook.training.experiments.codec_problems import codec_of
from scalebook.training.experiments.completion import to_read
from scalebook.training.experiments.confinement import checkpoint_problems, class_problems, path_problems
from scalebook.training.experiments.data_paths import data_path_problems
from scalebook.training.experiments.description import ClassInfo, Description, Field, Group
from scalebook.training.experiments.fields import check_args, check_value, quoted_value
from scalebook.training.experiments.lr_scaling import FIELDS, KEY, NO_BATCH, rate_scaling
from scalebook.training.experiments.num_nodes import nodes_of, queue_problems
from scalebook.training.experiments.pipeline_order import Schedule
from scalebook.training.experiments.split_degrees import PRECISIONS, refuse_degrees
from scalebook.training.experiments.workload import choice, simulates, workload

WORDS: Final = {"model": "model", "data": "data set", "optimizer": "optimizer", "lr_scheduler": "scheduler"}
SEED: Final = Field("seed_everything", "int", "Seed of the first run.", default=1, minimum=0, maximum=2**32 - 1)
PROFILERS: Final = ("simple", "advanced", "pytorch")
THREADS: Final = Field("threads", "int", "CPU threads of each worker.", default=1, minimum=1, maximum=1024)
MATMUL: Final = Field(
    "float32_matmul_precision",
    "enum",
    "Precision of float32 matrix products. `highest`: float32, torch's own default. `high`: TF32 on a GPU that "
    "has it, 10 bits of mantissa instead of 23, several times as fast. `medium`: bfloat16 where that is faster, on a "
    "CPU too. Convolutions on a GPU use TF32 in any case.",
    nullable=True,
    choices=["highest", "high", "medium"],
)
NOISE_SCALE: Final = Field(
    "noise_scale",
    "bool",
    "Estimates, during training, the largest batch size that is still efficient. Costs a few percent of the time.",
    default=False,
)
GPU_SHARE: Final = Field(
    "gpu_share", "float",
    "Share of a GPU's memory that this run may use. Runs with a share can run side by side.",
    default=1.0, minimum=0.01, maximum=1.0,
)  # fmt: skip
OF_THE_RUN: Final = {field.name: field for field in (THREADS, MATMUL, NOISE_SCALE, GPU_SHARE)}


def validate(
    config: Any,
    description: Description,
    *,
    partial: bool = False,
    cores: int | None = None,
    typed: bool = False,
    queued: bool = True,
) -> list[Problem]:
    """All problems of `config`, in the order of its keys; `partial` allows what is required to be missing.

    Warnings are settings without effect, and workers without a core of their own where `cores` tells how many there
    are. A config without errors is one that LightningCLI accepts, as far as the description tells; what only the
    classes themselves can refuse is found when they are built. `typed`: on a command line, so that a run of it is not
    one of the queue; see scalebook.training.experiments.confinement. `queued`: whether the queue is to run it as it is.
    """
    if not isinstance(config, Mapping):
        return [
            Problem("config", f"is {quoted_value(config)}, not a mapping", "Write keys such as `model:` and `data:`.")
        ]
    problems = _top_level(config)
    problems += _trainer(config.get("trainer"), description)
    for key, group in GROUP_OF_KEY.items():
        if config.get(key) is not None:
            problems += check_class(key, config[key], group, description, partial=partial)
        elif key in ("model", "data") and not partial:
            names = sorted(info.name for info in getattr(description, group))
            problems.append(Problem(key, "is missing", f"Name a {WORDS[key]}: {', '.join(names)}."))
    problems += checkpoint_problems(config)
    problems += async_problems(config, description) + peer_problems(config, description)
    problems += split_problems(config, description)
    problems += codec_problems.problems(config, description)
    problems += sparse_tables.problems(config, description) + rate_problems(config, description)
    problems += validations.problems(config, description)
    problems += logged_metrics.monitor_problems(config, description)
    problems += _without_effect(config, description) + _shared(config, description)
    if queued and not typed:
        problems += queue_problems(config, description) + data_path_problems(config, description)
    if not description.trusted:
        problems += _confined(config, description, problems, typed)
    return problems + (_crowded(config, description, cores) if cores else [])


def _confined(
    config: Mapping[str, Any], description: Description, problems: list[Problem], typed: bool
) -> Iterator[Problem]:
    """What a folder that is not trusted may not ask for, beyond the problems that are known already.

    Of a config without errors what is asked for is what the runner will be given: the completed config.
    """
    if all(problem.severity == "warning" for problem in problems):
        config = to_read(config, description)
    if not typed:
        keys = [problem.key for problem in problems]
        for problem in class_problems(config):
            if not any(problem.key == key or problem.key.startswith(f"{key}.") for key in keys):
                yield problem
    yield from path_problems(config, Path(description.folder), Path.cwd() if typed else None)


def require(config: Any, description: Description, *, typed: bool = False, queued: bool = True) -> None:
    """Raise ConfigError for the first error in `config`; warnings pass. See `validate`."""
    for problem in validate(config, description, typed=typed, queued=queued):
        if problem.severity == "error":
            raise ConfigError(problem.key, problem.message, problem.remedy)


def check_class(
    key: str, value: Any, group: Group, description: Description, *, partial: bool = False
) -> list[Problem]:
    """What is wrong with the class named at `key` and with its arguments."""
    reference = read_class(value)
    if reference.name is None:
        return [
            Problem(
                key,
                f"is {quoted_value(value)}, not a class",
                f"Write {key}: {{class_path: ..., init_args: {{...}}}}.",
            )
        ]
    info = reference.info(group, description)
    if info is None:
        return [_unknown_class(key, reference.name, group, description)]
    problems = _also_called(key, reference.name, info, group, description)
    problems += [
        Problem(f"{key}.{extra}", "does not belong next to class_path", f"Move it into {key}.init_args.")
        for extra in reference.extra
    ]
    if reference.args is None:
        return [*problems, Problem(f"{key}.init_args", "is not a mapping", "Write one `name: value` per line.")]
    return problems + check_args(f"{key}.init_args", reference.args, info.fields, of=info.name, partial=partial)


def _also_called(key: str, name: str, info: ClassInfo, group: Group, description: Description) -> list[Problem]:
    """A warning where another class has the short `name` that stands for `info`."""
    others = [other.class_path for other in getattr(description, group) if other.class_path.endswith(f".{name}")]
    if name != info.name or len(others) < 2:
        return []
    return [
        Problem(
            key,
            f"names {quoted_value(name)}, which {' and '.join(others)} share; {info.class_path} is used",
            "Write the full path of the one you mean.",
            "warning",
        )
    ]


def _unknown_class(key: str, name: str, group: Group, description: Description) -> Problem:
    what, where = WORDS.get(key, "strategy"), ""
    if key in ("model", "data") and (refused := description.refusal(name)) is not None:
        return Problem(key, f"names {quoted_value(name)}, which {refused.why}", refused.remedy)
    entries = getattr(description, group)
    names = [entry.config_value or entry.name for entry in entries]
    remedy = suggestion(name, names)
    module = name.rpartition(".")[0]
    if key in ("model", "data") and module:
        if import_problems := [
            problem for problem in description.problems if within(name, [problem.partition(":")[0]])
        ]:
            remedy = f"Its module was not imported: {import_problems[0]}"
        elif within(f"{module}.", description.packages):
            own = [entry.name for entry in entries if entry.source == "user"]
            where = " in the modules of scalebook.toml"
            remedy = suggestion(name, own) or "Its class must be a LightningModule or a LightningDataModule."
        elif not remedy.startswith("Did"):
            remedy = f'{remedy} For your own class, add its module to scalebook.toml: modules = ["..."].'
    return Problem(key, f"unknown {what} {quoted_value(name)}{where}", remedy)


def _top_level(config: Mapping[str, Any]) -> list[Problem]:
    config, more = few_strangers(config, TOP_KEYS)
    problems = [Problem("config", f"has {more} more unknown keys", "Remove them.")] if more else []
    for key, value in config.items():
        if key == "repeats":
            problems.append(Problem(key, "does not belong in the config", "Write it next to `config:` in the cell."))
        elif key not in TOP_KEYS:
            problems.append(Problem(str(key), "is not a key of a config", suggestion(str(key), TOP_KEYS)))
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
        return [Problem("trainer", f"is {quoted_value(value)}, not a mapping", "Write one `name: value` per line.")]
    settings = {key: item for key, item in value.items() if key != "strategy"}
    problems = check_args("trainer", settings, description.trainer)
    if isinstance(value.get("profiler"), str) and value["profiler"] not in PROFILERS:
        remedy = suggestion(value["profiler"], PROFILERS)
        why = f"is {quoted_value(value['profiler'])}, which is not a profiler"
        problems.append(Problem("trainer.profiler", why, remedy))
    if value.get("strategy") is not None:
        problems += check_class("trainer.strategy", value["strategy"], "strategies", description)
    return problems


def _shared(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """A share of a GPU where no GPU is asked for, or more than one."""
    load = workload(config, description)
    if load.gpu_share == 1:
        return []
    said = f"is {quoted_value(config.get('gpu_share'))}"
    if load.accelerator == "cpu":
        return [Problem("gpu_share", f"{said}, but the run uses a CPU", "Remove it, or write accelerator: auto.")]
    if load.devices * load.nodes > 1:
        why = f"{said}, but the run takes {load.devices * load.nodes} GPUs: only runs on one GPU can share it"
        remedy = "Write trainer.devices: 1 (AsyncPS's init_args.workers may be more), or remove it."
        return [Problem("gpu_share", why, remedy)]
    return []


def _without_effect(config: Mapping[str, Any], description: Description) -> list[Problem]:
    problems: list[Problem] = []
    model = read_class(config.get("model")).info("models", description)
    if model is not None and model.own_optimizer:
        problems += [
            Problem(key, f"has no effect: {model.name} has its own configure_optimizers", "Remove it.", "warning")
            for key in ("optimizer", "lr_scheduler")
            if config.get(key) is not None
        ]
    trainer = mapping(config.get("trainer"))
    strategy = read_class(trainer.get("strategy"))
    workers = mapping(strategy.args).get("workers")
    devices = trainer.get("devices")
    both = isinstance(workers, int) and isinstance(devices, int) and not simulates(mapping(strategy.args))
    if both and workers != devices and trainer.get("accelerator") == "cpu":
        problems.append(
            Problem(
                "trainer.devices",
                f"has no effect on a CPU: the strategy has {workers} workers",
                f"Remove it, or write {workers}.",
                "warning",
            )
        )
    return problems


def _crowded(config: Mapping[str, Any], description: Description, cores: int) -> list[Problem]:
    """Workers that would take turns on the cores: they run, and their times say little."""
    load = workload(config, description)
    if load.threads * load.processes <= cores:
        return []
    each = f"{load.threads} threads" if load.threads > 1 else "1 thread"
    return [
        Problem(
            "threads" if load.threads > 1 else "trainer.devices",
            f"is more than this machine has: {load.processes} workers with {each} each on {cores} cores",
            "They share cores, so times and staleness are those of an overloaded machine. Use fewer to measure speed.",
            "warning",
        )
    ]


# --- of a parameter server --------------------------------------------------------------------------------------------


def async_problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings of a config whose strategy is AsyncPS; none for others."""
    strategy = read_class(mapping(config.get("trainer")).get("strategy"))
    info = strategy.info("strategies", description)
    if info is None or info.name != "AsyncPS":
        return []
    args = {**{field.name: field.default for field in info.fields}, **mapping(strategy.args)}
    load = workload(config, description)
    workers = load.workers
    rule, damping = choice("rule", args, info), choice("damping", args, info)
    findings = _async_refused(mapping(config.get("trainer")), workers) + _async_refused_far(config, args)
    if rule and damping:
        facts, effect = rule.info.rule or RuleFacts(rule.word), damping.info.damping or DampingFacts(damping.word)
        own = choice("local", args, info)
        local = (own.info.local if own else None) or LocalFacts("none")
        findings += _contradictions(args, facts, effect, local, rule.counts(), workers)
        findings += _of_workers(args.get("workers"), workers // load.nodes, load.nodes, facts, rule.counts())
        if facts.synchronous and (effect.drops or effect.scales):
            why = f"with the rule {rule.word} every gradient is fresh"
            findings.append(_async_idle("damping", why, "Write none, or another rule."))
    if args.get("clock") is not None:
        findings += _said_by(read_clock, args["clock"], workers)
    if args.get("limits") is not None:
        findings += _said_by(read_limits, args["limits"])
    if workers == 1:
        alone = "there is only one worker"
        findings += [
            _async_idle(name, alone, "Use more workers.")
            for name, value in (
                ("warmup_updates", args.get("warmup_updates")),
                ("limits.restarts", mapping(args.get("limits")).get("restarts")),
            )
            if value
        ]
    return findings


def peer_problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors of a config whose strategy is Peers, as the engine says them when it starts; none for others."""
    strategy = read_class(mapping(config.get("trainer")).get("strategy"))
    info = strategy.info("strategies", description)
    if info is None or info.name != "Peers":
        return []
    args = {**{field.name: field.default for field in info.fields}, **mapping(strategy.args)}
    trainer, workers = mapping(config.get("trainer")), workload(config, description).workers
    findings = _async_refused(trainer, workers)
    if nodes_of(trainer) > 1:
        findings.append(_async_error(*ONE_MACHINE))
    if (args.get("clock") is not None) != simulates(args):
        settings = CheckedSettings(RuleFacts(), DampingFacts(), str(args.get("host")), False, args["clock"] is not None)
        findings += [_async_error(*contradiction) for contradiction in contradictions(settings)]
    if args.get("clock") is not None:
        findings += _said_by(lambda: read_clock(args["clock"], workers).check_without_servers())
    if args.get("limits") is not None:
        findings += _said_by(read_limits, args["limits"])
    exchange, topology = choice("exchange", args, info), choice("topology", args, info)
    if exchange is not None and exchange.word in EXCHANGES:
        graph = TOPOLOGIES.get(topology.word, Complete) if topology else Complete  # one's own is checked at the start
        numbers: dict[str, Any] = {name: args.get(name) for name in ("mixing", "every", "global_every")}
        codec = codec_of("codec", args, info)
        made = EXCHANGES[exchange.word](**exchange.args)
        findings += _said_by(lambda: Peering(made, graph(), codec, **numbers).check(Async(), workers))
        if graph is OnePeerExponential and workers & (workers - 1):
            why = f"{workers} workers are no power of 2, so that they are never all equal after a few rounds"
            remedy = "Write such a number of workers, or exponential, to average exactly."
            findings.append(Problem(f"{ARGUMENTS}.topology", why, remedy, "warning"))
    return findings


def split_problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors of a config whose strategy is ModelParallel, as it says them when it starts; none for others."""
    trainer, load = mapping(config.get("trainer")), workload(config, description)
    if load.strategy != MODEL_PARALLEL:
        return []
    args = mapping(read_class(trainer.get("strategy")).args)
    tensor, shard, stages, microbatches = (args.get(name) for name in ("tensor", "shard", "stages", "microbatches"))
    schedule: Schedule = "gpipe" if args.get("schedule") == "gpipe" else "1f1b"
    findings = list[Problem]()
    if all(isinstance(degree, int | None) for degree in (tensor, shard, stages, microbatches)):
        findings += _said_by(
            lambda: refuse_degrees(tensor or 1, shard, load.workers, stages or 1, microbatches, schedule)
        )
    if trainer.get("sync_batchnorm"):
        why = "is not shared within a forward pass by the workers of a split model"
        findings.append(Problem("trainer.sync_batchnorm", why, "Write false, or use ddp."))
    if trainer.get("precision") not in (None, *PRECISIONS):
        why = f"{quoted_value(trainer['precision'])} does not go with a split model"
        findings.append(Problem("trainer.precision", why, "Write 32-true, bf16-mixed, bf16-true or 16-true."))
    if config.get(NOISE_SCALE.name):
        findings.append(Problem(NOISE_SCALE.name, "needs a whole copy of the model, and it is split", "Write false."))
    return findings


def _contradictions(
    args: Mapping[str, Any],
    rule: RuleFacts,
    damping: DampingFacts,
    local: LocalFacts,
    counts: Mapping[str, int],
    workers: int,
) -> list[Problem]:
    """What the engine refuses when it starts, said before."""
    settings = CheckedSettings(
        rule, damping, str(args.get("host")), args.get("record") == "drift", args.get("clock") is not None, local,
        bool(counts.get("cancel")) and counts.get("backup_workers", 0) > 0,
    )  # fmt: skip
    first = nobody_left(rule, counts, workers)
    return [_async_error(*contradiction) for contradiction in ([first] if first else []) + contradictions(settings)]


def _of_workers(written: object, on_each: int, nodes: int, rule: RuleFacts, counts: Mapping[str, int]) -> list[Problem]:
    """Of `workers`, a number or `{min, max}`."""
    if written is None or (isinstance(written, int) and not isinstance(written, bool) and written > 0):
        return []
    try:
        refusal = misfit(read_range(written), on_each, nodes, rule, counts)
    except ValueError as error:
        return [Problem.said_by(error)]
    return [_async_error(*refusal)] if refusal else []


def _said_by(read: Callable[..., object], *written: object) -> list[Problem]:
    """What is wrong with what an argument says, as its reader refuses it."""
    try:
        read(*written)
    except ValueError as error:
        return [Problem.said_by(error)]
    return []


def _async_error(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGUMENTS}.{name}", why, remedy)


def _async_idle(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGUMENTS}.{name}", f"has no effect: {why}", remedy, "warning")


def _async_refused_far(config: Mapping[str, Any], args: Mapping[str, Any]) -> list[Problem]:
    """What workers on several machines cannot do, as the engine says it when it starts."""
    if nodes_of(mapping(config.get("trainer"))) == 1:
        return []
    return [_async_error(*refusal[:3]) for refusal in FAR if args.get(refusal.key) == refusal.value]


def _async_refused(trainer: Mapping[str, Any], workers: int) -> list[Problem]:
    """What a parameter server does not do of what the Trainer may be asked for."""
    refusals: list[Problem] = []
    if trainer.get("sync_batchnorm") and workers > 1:
        refusals.append(
            Problem(
                "trainer.sync_batchnorm",
                "needs a common batch of all workers, which there is not",
                "Write false, or use ddp. The strategy's argument buffers says how workers share running statistics.",
            )
        )
    return refusals


# --- of learning rates ------------------------------------------------------------------------------------------------


def rate_problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings about `lr_scaling`; none where the config has no such key."""
    settings = config.get(KEY)
    if settings is None:
        return []
    if not isinstance(settings, Mapping):
        remedy = f"Write {KEY}: {{rule: linear, per: 256, warmup_epochs: 1}}."
        return [Problem(KEY, f"is {quoted_value(settings)}, not a mapping", remedy)]
    fields = {field.name: field for field in FIELDS}
    findings: list[Problem] = []
    for name, value in settings.items():
        if name not in fields:
            findings.append(Problem(f"{KEY}.{name}", "is not an argument", suggestion(str(name), fields)))
        elif problem := check_value(f"{KEY}.{name}", value, fields[name]):
            findings.append(problem)
        elif value == math.inf:
            findings.append(Problem(f"{KEY}.{name}", "is infinite", "Write a number of epochs."))
    return findings or _impossible_rate(config, description)


def _impossible_rate(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """What makes a scaling that is well written impossible for this config."""
    scaling, load = rate_scaling(config), workload(config, description)
    assert scaling is not None
    if scaling.rule == "none":
        return [_idle_rate("rule none does not change the rate")] if scaling.warmup_epochs else []
    if load.batch_averaged is None:
        if config.get("data") is None:
            return []
        return [Problem(KEY, NO_BATCH, "Remove it, or write rule: none.")]
    if not scaling.warmup_epochs:
        return []
    if scaling.factor(load.batch_averaged) <= 1:
        return [_idle_rate(f"a batch of {load.batch_averaged:,} does not raise a learning rate per {scaling.per:,}")]
    epochs = mapping(config.get("trainer")).get("max_epochs")
    if isinstance(epochs, int) and 0 < epochs <= scaling.warmup_epochs:
        which = f"{KEY}.warmup_epochs"
        remedy = "Write fewer epochs, or train longer."
        return [
            Problem(which, f"is {scaling.warmup_epochs:g}, but the run ends after {epochs} epochs", remedy, "warning")
        ]
    return []


def _idle_rate(why: str) -> Problem:
    return Problem(f"{KEY}.warmup_epochs", f"has no effect: {why}", "Remove it.", "warning")
