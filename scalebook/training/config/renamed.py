"""What earlier versions wrote: the class paths that hashes are made of, and arguments that are no more."""

from collections.abc import Mapping
from typing import Any, Final

MOVED: Final = {
    "training.ps.rules.": "scalebook.training.ps.policy.rules.",
    "training.ps.damping.": "scalebook.training.ps.policy.damping.",
    "training.callbacks.rate_range.": "scalebook.training.tuning.rate_range.",
    "training.": "scalebook.training.",
}
"""How paths began, and how they begin now; the first that fits counts."""


def removed_argument(class_name: str, name: str, args: Mapping[str, Any]) -> str | None:
    """What to write instead of an argument that an earlier version had; None of any other."""
    if (class_name, name) == ("AsyncPS", "threads"):
        return "Remove it." if args[name] is None else f"Write threads: {args[name]} at the top of the config."
    if class_name != "Async" or name not in ("push_every", "pull_every"):
        return None
    pushes, fetches = args.get("push_every", 1), args.get("pull_every", 1)
    if pushes == fetches == 1:
        return "Remove it."
    local = f"{{class_path: Downpour, init_args: {{n_push: {pushes}, n_fetch: {fetches}}}}}"
    return f"Write local: {local} beside the rule."


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
