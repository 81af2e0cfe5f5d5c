"""What is wrong with a config, found without torch, before anything starts: form and command line ask here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalebook.training.config import asynchronous, rate_problems
from scalebook.training.config.addresses import checkpoint_problems
from scalebook.training.config.classes import GROUP_OF_KEY, few_strangers, mapping, named, suggestion
from scalebook.training.config.confined import class_problems, path_problems
from scalebook.training.config.description import ClassInfo, Description, Field, Group
from scalebook.training.config.fields import check_args, check_value, shown
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files.yaml import TOP_KEYS

WORDS: Final = {"model": "model", "data": "data set", "optimizer": "optimizer", "lr_scheduler": "scheduler"}
SEED: Final = Field("seed_everything", "int", minimum=0, maximum=2**32 - 1)
PROFILERS: Final = ("simple", "advanced", "pytorch")
THREADS: Final = Field("threads", "int", minimum=1, maximum=1024)
NOISE_SCALE: Final = Field("noise_scale", "bool")


def validate(
    config: Any, description: Description, *, partial: bool = False, cores: int | None = None, typed: bool = False
) -> list[Problem]:
    """All problems of `config`, in the order of its keys; `partial` allows what is required to be missing.

    Warnings are settings without effect, and workers without a core of their own where `cores` tells how many there
    are. A config without errors is one that LightningCLI accepts, as far as the description tells; what only the
    classes themselves can refuse is found when they are built. `typed`: see scalebook.training.config.confined.
    """
    if not isinstance(config, Mapping):
        return [Problem("config", f"is {shown(config)}, not a mapping", "Write keys such as `model:` and `data:`.")]
    found = _top_level(config)
    found += _trainer(config.get("trainer"), description)
    for key, group in GROUP_OF_KEY.items():
        if config.get(key) is not None:
            found += check_class(key, config[key], group, description, partial=partial)
        elif key in ("model", "data") and not partial:
            known = sorted(one.name for one in getattr(description, group))
            found.append(Problem(key, "is missing", f"Name a {WORDS[key]}: {', '.join(known)}."))
    found += checkpoint_problems(config)
    found += asynchronous.problems(config, description) + rate_problems.problems(config, description)
    found += _without_effect(config, description)
    if not description.trusted:
        found += _confined(config, description, found, typed)
    return found + (_crowded(config, description, cores) if cores else [])


def _confined(
    config: Mapping[str, Any], description: Description, known: list[Problem], typed: bool
) -> Iterator[Problem]:
    """What a folder that is not trusted may not ask for, beyond the problems that are known already."""
    if not typed:
        keys = [one.key for one in known]
        for problem in class_problems(config):
            if not any(problem.key == key or problem.key.startswith(f"{key}.") for key in keys):
                yield problem
    yield from path_problems(config, Path(description.folder), Path.cwd() if typed else None)


def require(config: Any, description: Description, *, partial: bool = False, typed: bool = False) -> None:
    """Raise ConfigError for the first error in `config`; warnings pass."""
    for problem in validate(config, description, partial=partial, typed=typed):
        if problem.severity == "error":
            raise ConfigError(problem.key, problem.message, problem.remedy)


def check_class(
    key: str, value: Any, group: Group, description: Description, *, partial: bool = False
) -> list[Problem]:
    """What is wrong with the class named at `key` and with its arguments."""
    told = named(value)
    if told.name is None:
        return [
            Problem(
                key,
                f"is {shown(value)}, which names no class",
                f"Write {key}: {{class_path: ..., init_args: {{...}}}}.",
            )
        ]
    info = told.info(group, description)
    if info is None:
        return [_unknown_class(key, told.name, group, description)]
    found = _also_called(key, told.name, info, group, description)
    found += [
        Problem(f"{key}.{extra}", "does not belong beside class_path", f"Move it into {key}.init_args.")
        for extra in told.extra
    ]
    if told.args is None:
        return [*found, Problem(f"{key}.init_args", "is not a mapping", "Write one `name: value` a line.")]
    return found + check_args(f"{key}.init_args", told.args, info.fields, partial=partial)


def _also_called(key: str, name: str, info: ClassInfo, group: Group, description: Description) -> list[Problem]:
    """A warning where another class has the short `name` that stands for `info`."""
    others = [one.class_path for one in getattr(description, group) if one.class_path.endswith(f".{name}")]
    if name != info.name or len(others) < 2:
        return []
    return [
        Problem(
            key,
            f"names {shown(name)}, and {' and '.join(others)} are called so; {info.class_path} is used",
            "Write the whole path of the one that you mean.",
            "warning",
        )
    ]


def _unknown_class(key: str, name: str, group: Group, description: Description) -> Problem:
    entries = getattr(description, group)
    known = [entry.config_value or entry.name for entry in entries]
    remedy = suggestion(name, known)
    if key in ("model", "data") and "." in name and not remedy.startswith("Did"):
        remedy = f'{remedy} For a class of your own, add its module to scalebook.toml: modules = ["..."].'
        module = name.rsplit(".", 1)[0]
        if told := [problem for problem in description.problems if problem.startswith(f"{module}:")]:
            remedy = f"Its module could not be imported: {told[0]}"
    return Problem(key, f"names {shown(name)}, which is no known {WORDS.get(key, 'strategy')}", remedy)


def _top_level(config: Mapping[str, Any]) -> list[Problem]:
    config, more = few_strangers(config, TOP_KEYS)
    found = [Problem("config", f"has {more} more keys that it does not know", "Remove them.")] if more else []
    for key, value in config.items():
        if key == "repeats":
            found.append(Problem(key, "does not belong into the config", "Write it beside `config:` in the cell."))
        elif key not in TOP_KEYS:
            found.append(Problem(str(key), "is not a key of a config", suggestion(str(key), TOP_KEYS)))
        elif key == "seed_everything" and not isinstance(value, bool):
            found += [problem for problem in [check_value(key, value, SEED)] if problem]
        elif key == "threads":
            found += [problem for problem in [check_value(key, value, THREADS)] if problem]
        elif key == "noise_scale":
            found += [problem for problem in [check_value(key, value, NOISE_SCALE)] if problem]
    return found


def _trainer(value: Any, description: Description) -> list[Problem]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [Problem("trainer", f"is {shown(value)}, not a mapping", "Write one `name: value` a line.")]
    settings = {key: item for key, item in value.items() if key != "strategy"}
    found = check_args("trainer", settings, description.trainer)
    if isinstance(value.get("profiler"), str) and value["profiler"] not in PROFILERS:
        remedy = suggestion(value["profiler"], PROFILERS)
        found.append(Problem("trainer.profiler", f"is {shown(value['profiler'])}, which is none", remedy))
    if value.get("strategy") is not None:
        found += check_class("trainer.strategy", value["strategy"], "strategies", description)
    return found


def _without_effect(config: Mapping[str, Any], description: Description) -> list[Problem]:
    found: list[Problem] = []
    model = named(config.get("model")).info("models", description)
    if model is not None and model.own_optimizer:
        found += [
            Problem(key, f"has no effect: {model.name} has its own configure_optimizers", "Remove it.", "warning")
            for key in ("optimizer", "lr_scheduler")
            if config.get(key) is not None
        ]
    trainer = mapping(config.get("trainer"))
    strategy = named(trainer.get("strategy"))
    workers = mapping(strategy.args).get("workers")
    devices = trainer.get("devices")
    both = isinstance(workers, int) and isinstance(devices, int)
    if both and workers != devices and trainer.get("accelerator") == "cpu":
        found.append(
            Problem(
                "trainer.devices",
                f"has no effect on a CPU: the strategy asks for {workers} workers",
                f"Remove it, or write {workers}.",
                "warning",
            )
        )
    return found


def _crowded(config: Mapping[str, Any], description: Description, cores: int) -> list[Problem]:
    """Workers that would take turns on the cores: they run, and their times say little."""
    load = workload(config, description)
    if load.threads * load.workers <= cores:
        return []
    each = f"{load.threads} threads" if load.threads > 1 else "1 thread"
    return [
        Problem(
            "threads" if load.threads > 1 else "trainer.devices",
            f"is more than this machine has: {load.workers} workers with {each} each on {cores} cores",
            "They take turns, so times and staleness are those of a crowded machine. Use fewer to measure speed.",
            "warning",
        )
    ]
