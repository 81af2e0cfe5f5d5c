"""Class paths as earlier versions wrote them: what they name now, and one form of both for hashes that are kept."""

from collections.abc import Mapping
from typing import Any, Final

MOVED: Final = {
    "training.ps.rules.": "scalebook.training.ps.policy.rules.",
    "training.ps.damping.": "scalebook.training.ps.policy.damping.",
    "training.callbacks.rate_range.": "scalebook.training.tuning.rate_range.",
    "training.": "scalebook.training.",
}
"""How paths began, and how they begin now; the first that fits counts."""


def renamed(path: str) -> str:
    """What a path of an earlier version is called now; any other as it stands."""
    return next((new + path.removeprefix(old) for old, new in MOVED.items() if path.startswith(old)), path)


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
