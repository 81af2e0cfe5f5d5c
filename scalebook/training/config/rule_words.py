"""A rule, a damping or another class of a field in the few words that tell runs apart: `bounded, bound 3`."""

from typing import Any

from scalebook.training.config.class_fields import Chosen


def words(choice: Chosen) -> str:
    """Its name and the settings that are not at their default: `sync, 1 backup`. "" for what does nothing."""
    facts = choice.info.rule or choice.info.damping
    head = choice.word.replace("_", " ") if facts is None or facts.words is None else facts.words
    said = [name for name in choice.settings() if f"{{{name}}}" in head]
    own = [_phrase(name, value) for name, value in choice.own().items() if name not in said]
    return ", ".join(part for part in (_filled(head, choice.settings()), *own) if part)


def _filled(head: str, settings: dict[str, Any]) -> str:
    """Each argument by its value, and nothing else that braces may mean: the words may be a user's."""
    for name, value in settings.items():
        head = head.replace(f"{{{name}}}", str(value))
    return head


def _phrase(name: str, value: Any) -> str:
    """`backup_workers`, 2 -> `2 backups`; `adaptive`, true -> `adaptive`; `push_every`, 4 -> `push every 4`."""
    plain = name.replace("_", " ")
    if plain.endswith(" workers"):
        return f"{value} {plain.removesuffix(' workers')}{'' if value == 1 else 's'}"
    if isinstance(value, bool):
        return plain if value else f"not {plain}"
    return f"{plain} {value:g}" if isinstance(value, float) else f"{plain} {value}"
