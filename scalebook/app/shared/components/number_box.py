"""A box for a number. It holds what was typed: the browser's own number boxes make 15 of `1,5` and drop `abc`."""

from typing import Any

import streamlit as st

from scalebook.app.shared.services import numbers


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
        numbers.shown(value),
        key=key,
        help=hint,
        placeholder=empty,
        disabled=disabled,
        label_visibility="collapsed" if hidden else "visible",
        bind="query-params" if in_address else None,
    )
    return numbers.read(said, whole=whole)
