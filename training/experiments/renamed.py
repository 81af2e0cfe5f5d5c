"""Spellings of earlier versions: read as today's, or refused; and restored for hashes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.codecs import CODECS
from scalebook.training.engine.rules.contradictions import ARGUMENTS
from scalebook.training.experiments.classes import mapping
from scalebook.training.old_paths import MOVED, path_of_now

_LONGEST_FIRST: Final = sorted(
    ((f"{old}.", f"{new}.") for old, new in MOVED.items()), key=lambda pair: len(pair[1]), reverse=True
)
FIRST_PATHS: Final = {
    "scalebook.training.ps.policy.rules.": "training.ps.rules.",
    "scalebook.training.ps.policy.damping.": "training.ps.damping.",
    "scalebook.training.tuning.rate_range.": "training.callbacks.rate_range.",
    "scalebook.training.": "training.",
}
"""How paths of version 0.1 began in the first configs, whose hashes stay; the first that fits counts."""


def renewed(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """`config` with class paths and AsyncPS's arguments as this version spells them, and a warning for each that it
    spelt otherwise.

    What has no other spelling stays, and is refused by `removed_argument`.
    """
    moved, paths = _paths_of_now(config, "")
    spelt, arguments = _arguments_of_now(moved)
    return spelt, paths + arguments


def renewed_at(key: str, value: Any) -> Any:
    """`value`, which stands at the dotted `key` of a config, or is a `strategy`, as `renewed` has it."""
    names = ["trainer", "strategy"] if key == "strategy" else key.split(".")
    for name in reversed(names):
        value = {name: value}
    config = renewed(value)[0]
    for name in names:
        config = config[name]
    return config


def _paths_of_now(value: Any, key: str) -> tuple[Any, list[Problem]]:
    """`value` with every class path, also one without arguments, as this version has it. `key` is where it stands."""
    if isinstance(value, str):
        new = path_of_now(value)
        return new, [Problem(key, SPELLING, f"Write {new}.", "warning")] if new != value else []
    if isinstance(value, list | tuple):
        value = {str(place): item for place, item in enumerate(value)}
        items, said = _paths_of_now(value, key)
        return list(items.values()), said
    if not isinstance(value, Mapping):
        return value, []
    content, said = {}, list[Problem]()
    for name, item in value.items():
        where = f"{key}.{name}".lstrip(".")
        content[name], below = _paths_of_now(item, where)
        said += below
    return content, said


def _arguments_of_now(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    strategy = mapping(mapping(config.get("trainer")).get("strategy"))
    written = mapping(strategy.get("init_args"))
    if not _is_async_ps(strategy) or not written.keys() & OLDER:
        return dict(config), []
    args, said = dict(written), []
    for name in [name for name in written if name in OLDER]:
        new = OLDER[name](args[name], args)
        if new is None:
            continue
        del args[name]
        args |= new
        key, remedy = f"{ARGUMENTS}.{name}", ", ".join(f"{key}: {_in_yaml(value)}" for key, value in new.items())
        said.append(Problem(key, SPELLING, f"Write {remedy}." if remedy else "Remove it.", "warning"))
    return {**config, "trainer": {**config["trainer"], "strategy": {**strategy, "init_args": args}}}, said


def _is_async_ps(strategy: Mapping[str, Any]) -> bool:
    return str(strategy.get("class_path")).rpartition(".")[2] in ("AsyncPS", "async_ps")


def _in_yaml(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return f"{{{', '.join(f'{key}: {_in_yaml(item)}' for key, item in value.items())}}}"


def _codec(args: Mapping[str, Any]) -> str:
    """The word for the codec of pulls."""
    written = args.get("pull_codec", "fp32")
    name = str(written.get("class_path") if isinstance(written, Mapping) else written).rpartition(".")[2]
    return next((word for word, codec in CODECS.items() if name in (word, codec.__name__)), name)


def _sends_differences(args: Mapping[str, Any]) -> bool:
    word = _codec(args)
    return word in CODECS and not CODECS[word].whole


def _overlap(value: Any, args: Mapping[str, Any]) -> dict[str, Any] | None:
    return {} if value is False else {"host": "overlap"} if value is True and args.get("host") == "process" else None


def _pull_delta(value: Any, args: Mapping[str, Any]) -> dict[str, Any] | None:
    return {} if value is _sends_differences(args) else None


def _recorded(word: str) -> Callable[[Any, Mapping[str, Any]], dict[str, Any] | None]:
    def new(value: Any, args: Mapping[str, Any]) -> dict[str, Any] | None:
        return {} if value is False else {"record": word} if value is True and "record" not in args else None

    return new


def _limit(name: str) -> Callable[[Any, Mapping[str, Any]], dict[str, Any] | None]:
    def new(value: Any, args: Mapping[str, Any]) -> dict[str, Any] | None:
        limits = mapping(args.get("limits"))
        return {"limits": {name: value, **limits}} if limits.get(name, value) == value else None

    return new


OLDER: Final[dict[str, Callable[[Any, Mapping[str, Any]], dict[str, Any] | None]]] = {
    "overlap": _overlap,
    "pull_delta": _pull_delta,
    "trace": _recorded("updates"),
    "norms": _recorded("drift"),
    "restarts": _limit("restarts"),
    "deadline_s": _limit("deadline_s"),
}
"""Arguments of version 0.1, each with what stands for such a value now, beside the other arguments; None: nothing."""
SPELLING: Final = "is the spelling of version 0.1"


def removed_argument(class_name: str, name: str, args: Mapping[str, Any]) -> str | None:
    """The remedy for an argument that an earlier version had; None for any other."""
    if class_name == "AsyncPS":
        return _removed(name, args)
    if class_name == "ModelParallel" and name in ("host", "clock"):
        return (
            "Remove it: one process has the numbers of a split model, and `scalebook plan --split` says how long an "
            "update would take."
        )
    if class_name != "Async" or name not in ("push_every", "pull_every"):
        return None
    pushes, fetches = args.get("push_every", 1), args.get("pull_every", 1)
    if pushes == fetches == 1:
        return "Remove it."
    local = f"{{class_path: Downpour, init_args: {{n_push: {pushes}, n_fetch: {fetches}}}}}"
    return f"Write local: {local} beside the rule."


def _removed(name: str, args: Mapping[str, Any]) -> str | None:
    match name:
        case "threads":
            return "Remove it." if args[name] is None else f"Write threads: {args[name]} at the top of the config."
        case "overlap":
            return "Write host: overlap, or remove it."
        case "pull_delta" if _sends_differences(args):
            return f"Remove it: {_codec(args)} sends differences of parameters; bf16 and fp16 send whole parameters."
        case "pull_delta" if _codec(args) not in CODECS:
            return "Remove it: the codec's own `whole` says whether pulls carry whole parameters or differences."
        case "pull_delta":
            return f"Remove it, or write pull_codec: int8: {_codec(args)} sends whole parameters."
        case "restarts" | "deadline_s":
            return f"Remove it, or limits.{name}: they have different values."
        case "trace" | "norms":
            return "Write record: updates, or record: drift; a run records one of them."
    return None


def first_spelling(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with AsyncPS's arguments as version 0.1 spelt them, so that a hash of it stays for ever."""
    strategy = mapping(mapping(content.get("trainer")).get("strategy"))
    if not _is_async_ps(strategy) or "init_args" not in strategy:
        return dict(content)
    args = dict(mapping(strategy["init_args"]))
    if args.get("host") == "overlap":
        args |= {"host": "process", "overlap": True}
    if args.get("record") in ("drift", "updates"):
        args["norms" if args.pop("record") == "drift" else "trace"] = True
    if isinstance(args.get("limits"), Mapping):
        args |= args.pop("limits")
    if _sends_differences(args):
        args["pull_delta"] = True
    return {**content, "trainer": {**content["trainer"], "strategy": {**strategy, "init_args": args}}}


def first_paths(content: Any) -> Any:
    """`content` with every `class_path` as the first version wrote it, so that a hash of it stays for ever."""
    if isinstance(content, Mapping):
        return {
            key: _first_path(item) if key == "class_path" and isinstance(item, str) else first_paths(item)
            for key, item in content.items()
        }
    return [first_paths(item) for item in content] if isinstance(content, list | tuple) else content


def _first_path(path: str) -> str:
    before = next((old + path.removeprefix(new) for old, new in _LONGEST_FIRST if path.startswith(new)), path)
    return next((old + before.removeprefix(new) for new, old in FIRST_PATHS.items() if before.startswith(new)), before)
