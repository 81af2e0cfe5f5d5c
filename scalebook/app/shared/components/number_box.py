"""A box for a number. It holds what was typed: the browser's own number boxes make 15 of `1,5` and drop `abc`.

It is read exactly as typed, or left as the text that it is, for a validation to refuse.
"""

import math
import re
from decimal import Decimal
from typing import Any, Final

import streamlit as st

NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
MOST_DIGITS: Final = 300


def draw(
    label: str,
    value: Any,
    key: str,
    *,
    whole: bool = False,
    hint: str | None = None,
    empty: str = "",
    hidden: bool = False,
    disabled: bool = False,
    in_address: bool = False,
) -> int | float | str | None:
    """The number in it; None where it is empty (`empty` then stands there in grey); else the text, which is none."""
    said = st.text_input(
        label,
        shown(value),
        key=key,
        help=hint,
        placeholder=empty,
        disabled=disabled,
        label_visibility="collapsed" if hidden else "visible",
        bind="query-params" if in_address else None,
    )
    return read(said, whole=whole)


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
