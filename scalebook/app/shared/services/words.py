"""Figures and times as a person reads them."""

import math
import sys
import time
from typing import Final

LONG: Final = 15
"""Powers of ten from which a figure is written with an exponent."""


def figure(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits with trailing zeros, thousands apart: `0.03100`, `2.103`, `12,400`; "" for None."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    if abs(value) >= sys.float_info.max:  # MLflow keeps the largest number there is in place of infinity
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= LONG:
        return f"{value:.{max(digits - 2, 0)}e}"
    if size >= digits - 1:
        return f"{value:,.0f}"
    if size < -4:
        return f"{value:.{max(digits - 2, 0)}e}"
    return f"{value:.{digits - 1 - size}f}"


def spoken(field: str) -> str:
    """A field of a config as people say it, `batch size`; one deep in it as it is written, `model.init_args.layers`."""
    return field if "." in field else field.replace("_", " ")


def plain(value: object) -> str:
    """A config's value, short: floats without noise, None as `–`, collections as YAML would write them in a line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(item)}" for key, item in value.items()) + "}"
    return str(value)


def ago(moment: float, now: float | None = None) -> str:
    """How long since a unix time: `just now`, `5 min ago`, `3 h ago`, `2 days ago`, then the date."""
    past = (time.time() if now is None else now) - moment
    if past < 60:
        return "just now"
    if past < 3600:
        return f"{past // 60:.0f} min ago"
    if past < 86400:
        return f"{past // 3600:.0f} h ago"
    if past < 7 * 86400:
        days = int(past // 86400)
        return "yesterday" if days == 1 else f"{days} days ago"
    return time.strftime("%d %b %Y", time.localtime(moment))


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """`text` with a capital letter and a full stop; an empty text stays empty."""
    text = text.strip()
    return text and f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
