"""Columns of figures in Streamlit's tables, as wide as their figures: a number that does not fit is cut on its left."""

import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import streamlit as st

from scalebook.app.shared.words import figure

DIGIT_PX: Final = 7.2
"""A digit, 14 px high; letters of a head are narrower on the whole."""
ROOM_PX: Final = 20
"""Left and right of what stands in a cell."""
LEAST_PX: Final = 75
MOST_HEAD_PX: Final = 190
"""Of a column for the sake of its head, which is cut on the right."""
SMALL: Final = 1e-4
LARGE: Final = 1e7
EXPONENT: Final = "%.4e"


def draw(
    title: str, values: Sequence[float | None], *, format: str = "", help: str | None = None
) -> tuple[Any, list[Any]]:
    """The column's config, and what stands in it: the values, or as text where one of them is NaN or infinite, which a
    column of numbers leaves empty. `format`: as `st.column_config.NumberColumn` has it, where that holds all digits."""
    known = [float(one) for one in values if one is not None]
    if not all(map(_is_finite, known)):
        texts = ["" if one is None else f"{one:.5g}" if _is_finite(one) else figure(one) for one in values]
        return text(title, texts, help=help), texts
    chosen = format if format and _holds(format, known) else fitting(known)
    width = _width(title, (shown(chosen, one) for one in known))
    return st.column_config.NumberColumn(title, format=chosen, help=help, width=width), list(values)


def _is_finite(value: float) -> bool:
    return abs(value) < sys.float_info.max  # MLflow's infinity


def text(title: str, values: Sequence[str], *, help: str | None = None) -> Any:
    """A column of words that are numbers as somebody wrote them."""
    return st.column_config.TextColumn(title, help=help, alignment="right", width=_width(title, values))


def fitting(known: Sequence[float]) -> str:
    """Five digits; whole numbers whole; powers of ten where a figure would be long."""
    if all(one.is_integer() and abs(one) < 1e15 for one in known):
        return "%d"
    sizes = [abs(one) for one in known if one]
    return EXPONENT if sizes and (min(sizes) < SMALL or max(sizes) >= LARGE) else "%.5g"


def shown(format: str, value: float) -> str:
    """As the browser writes it: JavaScript has no exponent from 0.000001 up to 1e21."""
    if not format.endswith("g"):
        return format % value
    rounded = float(format % value)
    return f"{Decimal(repr(rounded)):f}".removesuffix(".0") if 1e-6 <= abs(rounded) < 1e21 else f"{rounded:g}"


def _holds(format: str, known: Sequence[float]) -> bool:
    """Whether it says enough of each value; of fixed places also whether that is not long."""
    if format.endswith("g"):
        return True
    places = int(format.strip("%.f") or 0)
    return all(one == 0 or 10 ** min(0, 2 - places) <= abs(one) < LARGE for one in known)


def _width(title: str, texts: Any) -> int:
    longest = max((len(one) for one in texts), default=0)
    head = min(MOST_HEAD_PX, round(len(title) * 6.6) + ROOM_PX)
    return max(LEAST_PX, head, round(longest * DIGIT_PX) + ROOM_PX)
