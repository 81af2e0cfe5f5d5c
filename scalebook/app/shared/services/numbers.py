"""Numbers as people type them: read exactly as typed, or left as the text that they are, for a validation to refuse."""

import math
import re
from decimal import Decimal
from typing import Any, Final

NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
MOST_DIGITS: Final = 300


def read(text: str, *, whole: bool) -> int | float | str | None:
    """What `text` says: None where it is blank, the text itself where it is no number, or none that can be held.

    Of a field of whole numbers `1e3` is 1000, and `1.5` comes back as 1.5: the field says that it is not whole.
    """
    text = text.strip()
    if not text:
        return None
    if not NUMBER.fullmatch(text) or len(text) > MOST_DIGITS or not math.isfinite(float(text)):
        return text
    if whole and (exact := Decimal(text)) == exact.to_integral_value():
        return int(exact)
    return float(text)


def shown(value: Any) -> str:
    """A number as a person would type it, so that `read` has the same back; what is no number as its text."""
    if not isinstance(value, float) or not math.isfinite(value):
        return "" if value is None else str(value)
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)
