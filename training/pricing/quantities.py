"""Seconds, bytes and bytes a second as a person writes them: a number, or text with a unit."""

import math
import re
from collections.abc import Mapping
from typing import Final, Literal

from scalebook.training.base import ConfigError

Unit = Literal["s", "B", "B/s"]
SECONDS: Final[Mapping[str, float]] = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
BYTES: Final[Mapping[str, float]] = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
BANDWIDTHS: Final[Mapping[str, float]] = {
    **{f"{unit}/s": value for unit, value in BYTES.items()},
    **{f"{prefix}bit/s": value / 8 for prefix, value in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))},
}
UNITS: Final[Mapping[Unit, Mapping[str, float]]] = {"s": SECONDS, "B": BYTES, "B/s": BANDWIDTHS}
EXAMPLES: Final[Mapping[Unit, str]] = {
    "s": "0.18, or 180 ms", "B": "1e8, or 100 MB", "B/s": "1.25e9, 1.25 GB/s or 10 Gbit/s",
}  # fmt: skip
_TEXT: Final = re.compile(r"\s*([0-9.eE+-]+)\s*([A-Za-zµ/]+)\s*")


def quantity(written: object, unit: Unit, key: str) -> float:
    """The value in seconds, bytes or bytes a second; ConfigError, naming key and remedy, for anything else."""
    fix = f"Use the form {EXAMPLES[unit]}."
    if isinstance(written, int | float) and not isinstance(written, bool):
        value = float(written)
    else:
        match = _TEXT.fullmatch(written) if isinstance(written, str) else None
        factor = UNITS[unit].get(match[2]) if match else None
        if match is None or factor is None:
            raise ConfigError(key, f"is {written!r}, not a number of {_NAMES[unit]}", fix)
        try:
            value = float(match[1]) * factor
        except ValueError:
            raise ConfigError(key, f"is {written!r}, not a number of {_NAMES[unit]}", fix) from None
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(
            key, f"is {written!r}", f"Use a finite number that is not negative, such as {EXAMPLES[unit]}."
        )
    return value


_NAMES: Final[Mapping[Unit, str]] = {"s": "seconds", "B": "bytes", "B/s": "bytes a second"}


def format_quantity(value: float, unit: Unit) -> str:
    """`180 ms`, `2.7 MB`, `1.2 GB/s`: three digits, and the largest unit below it."""
    scale = {
        "s": (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)),
        "B": (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)),
        "B/s": (("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)),
    }[unit]
    name, factor = next((entry for entry in reversed(scale) if value >= entry[1]), scale[0])
    return f"{value / factor:.3g} {name}"


def workers_words(count: int, kind: str = "") -> str:
    """`1 worker`, `8 virtual workers` (kind "virtual ")."""
    return f"{count} {kind}worker{'s' * (count != 1)}"
