"""What must be the same in the config of every machine of a run, as digests to be held against each other."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

OWN: Final = frozenset({"path", "dir", "root", "file", "folder", "threads"})
"""Last words of keys that each machine has for itself."""
COMPARED: Final = frozenset({"seed_everything", "trainer.devices", "trainer.num_nodes"})
"""What machines tell each other by itself, with the values."""
DIGITS: Final = 8


def digests(config: Mapping[str, Any]) -> dict[str, str]:
    """Of every value that is given, by its path without `init_args`; without paths of files, which may differ."""
    leaves = {key: value for key, value in _leaves("", config) if value is not None and key not in COMPARED}
    return {
        key: hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:DIGITS]
        for key, value in leaves.items()
        if key.rpartition(".")[2].rpartition("_")[2] not in OWN or key.endswith("class_path")
    }


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        value = {str(number): one for number, one in enumerate(value)}
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, below in value.items():
        yield from _leaves(key if name == "init_args" else f"{key}.{name}".removeprefix("."), below)
