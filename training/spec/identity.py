"""Which config a run was made from: a hash of what the cell says."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGITS = 12


def config_hash(config: Mapping[str, Any]) -> str:
    """12 hex digits of the config as written; the same for any order of keys and any `seed_everything`.

    `1` and `1.0` are the same number here, as they are to whoever edits the cell.
    """
    content = {key: value for key, value in config.items() if key != "seed_everything"}
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
