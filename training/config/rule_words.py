"""A rule, a damping or another class of a field in the few words that tell runs apart: `bounded, bound 3`."""

from typing import Any, Final

from scalebook.training.config.class_fields import Chosen

HEADS: Final = {
    "bounded": "bounded, bound {bound}",
    "softsync": "softsync, average {average}",
    "none": "",
    "inverse": "inverse damping",
    "drop_above": "drop above {limit}",
}
"""How those are called whose name alone says too little; with the settings that are worth saying at any value."""


def words(found: Chosen) -> str:
    """Its name and the settings that are not at their default: `sync, 1 backup`. "" for what does nothing."""
    head = HEADS.get(found.word, found.word.replace("_", " "))
    said = [name for name in found.settings() if f"{{{name}}}" in head]
    own = [_phrase(name, value) for name, value in found.own().items() if name not in said]
    return ", ".join(part for part in (head.format_map(found.settings()), *own) if part)


def _phrase(name: str, value: Any) -> str:
    """`backup_workers`, 2 -> `2 backups`; `adaptive`, true -> `adaptive`; `push_every`, 4 -> `push every 4`."""
    plain = name.replace("_", " ")
    if name == "backup_workers":
        return f"{value} backup{'' if value == 1 else 's'}"
    if isinstance(value, bool):
        return plain if value else f"not {plain}"
    return f"{plain} {value:g}" if isinstance(value, float) else f"{plain} {value}"
