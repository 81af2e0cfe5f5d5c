"""Fields of a config by dotted paths without `init_args`: `model.hidden`, `trainer.strategy.rule.bound`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalebook.training.base import ConfigError
from scalebook.training.experiments.classes import GROUP_OF_KEY, choose_class, mapping, suggestion
from scalebook.training.experiments.command_line import CLASS_KEYS, ByPath, merge
from scalebook.training.experiments.description import ClassInfo, Field, Group
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.lr_scaling import FIELDS as RATE_FIELDS
from scalebook.training.experiments.lr_scaling import KEY as LR_SCALING
from scalebook.training.experiments.validation import THREADS


@dataclass(frozen=True)
class PathTarget:
    """Where a path leads in a config. `field` is None where the value is a class of `group`."""

    parts: tuple[str, ...]
    field: Field | None
    group: Group | None = None


def plain(path: str) -> str:
    """`path` without the `init_args` that may be left out."""
    return ".".join(part for part in path.split(".") if part != "init_args")


def place(path: str, experiment: Experiment) -> PathTarget:
    """Where `path` leads in an experiment; ConfigError, its key the path, where there is no such field."""
    parts = tuple(plain(path).split("."))
    for key in CLASS_KEYS:
        head = tuple(key.split("."))
        if parts[: len(head)] != head:
            continue
        group = GROUP_OF_KEY.get(key, "strategies")
        if parts == head:
            return PathTarget(parts, None, group)
        info, args = _class_at(key, experiment)
        if info is None:
            raise ConfigError(
                path,
                f"is a field of {key}, but {key} is not a known class",
                f"Set {key} to a known class.",
                "unknown-class",
            )
        return PathTarget(parts, _below(path, key, info, args, parts[len(head) :]))
    if parts == ("threads",):
        return PathTarget(parts, THREADS)
    candidates = {"trainer": experiment.description.trainer, LR_SCALING: RATE_FIELDS}.get(parts[0], ())
    if len(parts) == 2 and (field := next((candidate for candidate in candidates if candidate.name == parts[1]), None)):
        return PathTarget(parts, field)
    raise ConfigError(
        path, "is not a field of this config", suggestion(path, dict(fields_by_path(experiment))), "unknown-key"
    )


def fields_by_path(experiment: Experiment) -> Iterator[tuple[str, Field]]:
    """Every field that a path may name in an experiment, with its path."""
    for key in CLASS_KEYS:
        info, args = _class_at(key, experiment)
        if info is not None:
            yield from _fields(key, info, args)
    for field in experiment.description.trainer:
        yield f"trainer.{field.name}", field
    yield "threads", THREADS
    if experiment.written.get(LR_SCALING) is not None:
        yield from ((f"{LR_SCALING}.{field.name}", field) for field in RATE_FIELDS)


def put(experiment: Experiment, where: PathTarget, value: Any) -> Experiment:
    """The experiment with `value` at `where`, all else as it was; arguments are kept while a class stays the same."""
    head = next(
        (key.split(".") for key in CLASS_KEYS if tuple(key.split(".")) == where.parts[: key.count(".") + 1]), None
    )
    if head is None or len(where.parts) == len(head):
        change = ByPath.of(where.parts, value)
    else:
        below = where.parts[len(head) :]
        change = ByPath.of((*head, "init_args", *below), value)
    return experiment.with_config(merge(experiment.filled, change, experiment.description))


def _class_at(key: str, experiment: Experiment) -> tuple[ClassInfo | None, Mapping[str, Any]]:
    return experiment.info(key), mapping(experiment.named[key].args)


def _below(path: str, key: str, info: ClassInfo, args: Mapping[str, Any], parts: tuple[str, ...]) -> Field:
    field = next((field for field in info.fields if field.name == parts[0]), None)
    if field is None:
        paths = [f"{key}.{field.name}" for field in info.fields]
        fix = suggestion(f"{key}.{parts[0]}", paths) if paths else f"{info.name} has no fields."
        raise ConfigError(path, f"contains {parts[0]}, which is not a field of {info.name}", fix, "unknown-key")
    if len(parts) == 1:
        return field
    if field.type == "json":
        numbers = dict(_numbers(f"{key}.{parts[0]}", args.get(field.name)))
        if (name := ".".join((key, *parts))) not in numbers:
            fix = suggestion(name, numbers) if numbers else f"Use {key}.{parts[0]}."
            raise ConfigError(path, f"is an entry of {parts[0]} that the config does not have", fix, "unknown-key")
        return numbers[name]
    choice = choose_class(args.get(field.name, field.default), field) if field.type == "class" else None
    if choice is None:
        raise ConfigError(
            path, f"is a field of {parts[0]}, but {parts[0]} has no fields", f"Use {key}.{parts[0]}.", "unknown-key"
        )
    return _below(path, f"{key}.{parts[0]}", choice.info, choice.args, parts[1:])


def _fields(key: str, info: ClassInfo, args: Mapping[str, Any]) -> Iterator[tuple[str, Field]]:
    for field in info.fields:
        yield f"{key}.{field.name}", field
        choice = choose_class(args.get(field.name, field.default), field) if field.type == "class" else None
        if choice is not None:
            yield from _fields(f"{key}.{field.name}", choice.info, choice.args)
        elif field.type == "json":
            yield from _numbers(f"{key}.{field.name}", args.get(field.name))


def _numbers(path: str, value: Any) -> Iterator[tuple[str, Field]]:
    """The numbers in a mapping that an argument has, with their paths: `trainer.strategy.clock.link.bandwidth`. What
    they may be is for the argument's own class to say."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(f"{path}.{name}", inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, Field(path.rpartition(".")[2], "float", required=True)
