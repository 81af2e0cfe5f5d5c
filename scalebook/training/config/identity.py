"""Which config a run was made from: a hash of what the cell says."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.config.class_fields import short
from scalebook.training.config.classes import GROUP_OF_KEY, mapping, named
from scalebook.training.config.complete import with_extras
from scalebook.training.config.description import Description, Group
from scalebook.training.config.renamed import first_paths

DIGITS: Final = 12


def config_hash(config: Mapping[str, Any], description: Description) -> str:
    """12 hex digits of the config as written; the same for any order of keys and any `seed_everything`.

    `1` and `1.0` are the same number here, as they are to whoever edits the cell. So are the ways to name the class of
    a field: `rule: bounded` and its class with the defaults written out; and `lr_scaling` with its defaults or without.
    """
    content = with_extras({key: value for key, value in config.items() if key != "seed_everything"})
    for key, group in GROUP_OF_KEY.items():
        if key in content:
            content[key] = _shortened(content[key], group, description)
    if "strategy" in mapping(content.get("trainer")):
        strategy = _shortened(content["trainer"]["strategy"], "strategies", description)
        content["trainer"] = {**content["trainer"], "strategy": strategy}
    text = json.dumps(_plain(first_paths(content)), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _shortened(value: Any, group: Group, description: Description) -> Any:
    """The class at `value`, with the shortest words for each of its arguments that is itself a class."""
    reference = named(value)
    info = reference.info(group, description)
    fields = {field.name: field for field in info.fields if field.type == "class"} if info else {}
    if not fields or not reference.args:
        return value
    args = {name: short(given, fields[name]) if name in fields else given for name, given in reference.args.items()}
    return {**value, "init_args": args}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
