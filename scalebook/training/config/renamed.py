"""What earlier versions wrote: class paths, with one form of old and new for hashes that are kept, and arguments."""

from collections.abc import Mapping
from typing import Any, Final

MOVED: Final = {
    "training.ps.rules.": "scalebook.training.ps.policy.rules.",
    "training.ps.damping.": "scalebook.training.ps.policy.damping.",
    "training.callbacks.rate_range.": "scalebook.training.tuning.rate_range.",
    "training.": "scalebook.training.",
}
"""How paths began, and how they begin now; the first that fits counts."""


OLDER_ARGUMENTS: Final[dict[str, dict[str, tuple[str, Mapping[Any, Any]]]]] = {
    "AsyncPS": {"batch_norm": ("buffers", {"averaged": None})},
}
"""By class, arguments that this version reads for the last time: how they are called now, and which values too."""


def removed_argument(class_name: str, name: str, args: Mapping[str, Any]) -> str | None:
    """What to write instead of an argument that an earlier version had; None of any other."""
    if class_name != "Async" or name not in ("push_every", "pull_every"):
        return None
    pushes, fetches = args.get("push_every", 1), args.get("pull_every", 1)
    if pushes == fetches == 1:
        return "Remove it."
    local = f"{{class_path: Downpour, init_args: {{n_push: {pushes}, n_fetch: {fetches}}}}}"
    return f"Write local: {local} beside the rule."


def renamed(path: str) -> str:
    """What a path of an earlier version is called now; any other as it stands."""
    return next((new + path.removeprefix(old) for old, new in MOVED.items() if path.startswith(old)), path)


def renamed_arguments(path: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """`arguments` of the class at `path`, as they are called now."""
    older = OLDER_ARGUMENTS.get(path.rsplit(".", 1)[-1], {})
    given = {name: now for name, now in older.items() if name in arguments and now[0] not in arguments}
    if not given:
        return arguments
    values = {now: values.get(arguments[name], arguments[name]) for name, (now, values) in given.items()}
    return {**{name: value for name, value in arguments.items() if name not in given}, **values}


def first_paths(content: Any) -> Any:
    """`content` with every `class_path` as the first version wrote it, so that a hash of it stays for ever."""
    if isinstance(content, Mapping):
        return {
            key: _first_path(item) if key == "class_path" and isinstance(item, str) else first_paths(item)
            for key, item in content.items()
        }
    return [first_paths(item) for item in content] if isinstance(content, list | tuple) else content


def _first_path(path: str) -> str:
    return next((old + path.removeprefix(new) for old, new in MOVED.items() if path.startswith(new)), path)
