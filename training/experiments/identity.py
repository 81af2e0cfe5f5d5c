"""What a config means, however it is written: a hash of it, and its content in one form."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scalebook.training.experiments.classes import GROUP_OF_KEY, ChosenClass, mapping, shortest_form
from scalebook.training.experiments.description import ClassInfo
from scalebook.training.experiments.experiment import DEFAULT_SEED, DEFAULT_THREADS, STRATEGY, Experiment, with_extras
from scalebook.training.experiments.former_arguments import is_async_ps, pulls_differences
from scalebook.training.experiments.known_classes import paths_hashed

OWN: Final = frozenset({"path", "dir", "root", "file", "folder", "threads"})
"""Last words of keys whose values each node has for itself."""
COMPARED: Final = frozenset({"seed_everything", "trainer.devices", "trainer.num_nodes"})
"""Keys that nodes compare by themselves, with their values."""
SHORT: Final = 8


def alike_digests(config: Mapping[str, Any]) -> dict[str, str]:
    """A digest of every given value, by its path without `init_args`; without paths of files, which may differ."""
    leaves = {key: value for key, value in _leaves("", config) if value is not None and key not in COMPARED}
    return {
        key: hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:SHORT]
        for key, value in leaves.items()
        if key.rpartition(".")[2].rpartition("_")[2] not in OWN or key.endswith("class_path")
    }


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        value = {str(number): item for number, item in enumerate(value)}
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, below in value.items():
        yield from _leaves(key if name == "init_args" else f"{key}.{name}".removeprefix("."), below)


DIGITS: Final = 12


def config_hash(experiment: Experiment) -> str:
    """12 hex digits of an experiment's config as written; the same for any order of keys and any `seed_everything`.

    `1` and `1.0` are the same number here, as they are to a person. So are the ways to name the class of a field:
    `rule: bounded` and its class with the defaults written out; and `lr_scaling` with its defaults or without.
    """
    content = with_extras({key: value for key, value in experiment.written.items() if key != "seed_everything"})
    for key in GROUP_OF_KEY:
        if content.get(key) is not None:
            content[key] = _shortened(content[key], experiment, key)
    if mapping(content.get("trainer")).get("strategy") is not None:
        strategy = _shortened(content["trainer"]["strategy"], experiment, STRATEGY)
        content["trainer"] = {**content["trainer"], "strategy": strategy}
    text = json.dumps(
        _plain(paths_hashed(_arguments_hashed(content))), sort_keys=True, separators=(",", ":"), default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _arguments_hashed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with AsyncPS's arguments as version 0.1 spelled them, so that the hashes of recorded runs stay."""
    strategy = mapping(mapping(content.get("trainer")).get("strategy"))
    if not is_async_ps(strategy) or "init_args" not in strategy:
        return dict(content)
    args = dict(mapping(strategy["init_args"]))
    if args.get("host") == "overlap":
        args |= {"host": "process", "overlap": True}
    if args.get("record") in ("drift", "updates"):
        args["norms" if args.pop("record") == "drift" else "trace"] = True
    if isinstance(args.get("limits"), Mapping):
        args |= args.pop("limits")
    if pulls_differences(args):
        args["pull_delta"] = True
    return {**content, "trainer": {**content["trainer"], "strategy": {**strategy, "init_args": args}}}


def _shortened(value: Any, experiment: Experiment, key: str) -> Any:
    """The class that is `value`, at `key`, with the shortest words for each of its arguments that is itself a class."""
    info, args = experiment.info(key), experiment.named[key].args
    if not args or info is None or not any(field.type == "class" for field in info.fields):
        return value
    return {**value, "init_args": _shortest(args, info)}


def _shortest(args: Mapping[str, Any], info: ClassInfo) -> dict[str, Any]:
    fields = {field.name: field for field in info.fields if field.type == "class"}
    return {
        name: shortest_form(argument, fields[name]) if name in fields else argument for name, argument in args.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def base_content(experiment: Experiment) -> dict[str, Any]:
    """The config with classes by full path, without arguments that repeat a default, with seed, threads and optimizer.

    A default that is added by a later version changes nothing; what it does not know it leaves as it stands.
    """
    content = with_extras(dict(experiment.filled))
    for key in GROUP_OF_KEY:
        if content.get(key) is not None:
            content[key] = _said(content[key], experiment, key)
    trainer = {key: value for key, value in mapping(content.get("trainer")).items() if value is not None}
    strategy = trainer.pop("strategy", "auto")
    trainer["strategy"] = _said(strategy, experiment, STRATEGY)
    seed = content.get("seed_everything")
    content["seed_everything"] = DEFAULT_SEED if seed is None or isinstance(seed, bool) else seed
    content["threads"] = DEFAULT_THREADS if content.get("threads") is None else content["threads"]
    present = {key: value for key, value in content.items() if value is not None}
    return {str(key): item for key, item in paths_hashed(_arguments_hashed({**present, "trainer": trainer})).items()}


def _said(value: Any, experiment: Experiment, key: str) -> Any:
    info, args = experiment.info(key), experiment.named[key].args
    if info is None or args is None:
        return value
    args = _shortest(args, info)
    more = {key: item for key, item in mapping(value).items() if key not in ("class_path", "init_args")}
    return {"class_path": info.class_path, "init_args": ChosenClass(info, args).non_defaults(), **more}
