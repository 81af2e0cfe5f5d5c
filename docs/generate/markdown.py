"""What the generated pages write alike."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells may hold anything but block elements."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(value: Any) -> str:
    """`value` as code, as YAML and JSON write it; "" for nothing."""
    if value is None:
        return ""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def words(text: str) -> str:
    """Text of a docstring or a help, in which angle brackets and asterisks stand for themselves."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", part) for part in parts)
