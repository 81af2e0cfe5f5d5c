"""Values as YAML text, on one line or as an indented block, that reads back the same under YAML 1.1 and 1.2."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

PLAIN: Final = re.compile(r"[A-Za-z_][\w./+-]*( [\w./+-]+)*", re.ASCII)
"""Text that needs no quotes, unless it is one of `WORDS`."""

WORDS: Final = frozenset({"null", "true", "false", "y", "n", "yes", "no", "on", "off"})


def flow(value: Any) -> str:
    """`value` on one line: `{class_path: AsyncPS, init_args: {rule: async}}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _scalar(value)


def block(value: Mapping[str, Any], indent: int) -> str:
    """`value` with one `key: item` a line, indented by `indent` columns.

    Lists and empty mappings are on one line; a list of mappings (callbacks) has one item a line.
    """
    lines = []
    for key, item in value.items():
        start = f"{' ' * indent}{key_text(key)}:"
        if isinstance(item, Mapping) and item:
            lines.append(f"{start}\n{block(item, indent + 2)}")
        elif isinstance(item, list | tuple) and any(isinstance(element, Mapping) for element in item):
            lines += [f"{start}\n", *(f"{' ' * indent}  - {flow(element)}\n" for element in item)]
        else:
            lines.append(f"{start} {flow(item)}\n")
    return "".join(lines)


def key_text(key: Any) -> str:
    """A key as YAML text."""
    return _scalar(key)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type: 1 is not 1.0 here, nor true, because YAML writes them differently."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    """One character between double quotes: in JSON's way, but without surrogate pairs, which YAML has not."""
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _float(value: float) -> str:
    """`value` with a dot, without which YAML 1.1 reads text: 1e-05 becomes 1.0e-05."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(float(value))
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
