"""One dimension of a search as a row of widgets: what is varied, over which kind of range, from where to where."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

import streamlit as st

from scalebook.app.search.services.search_fields import KINDS, Row, SearchField, first_row, kind_of
from scalebook.app.shared import html
from scalebook.app.shared.widgets import number_box
from scalebook.app.shared.words import plain
from scalebook.training.config.search.space import Kind
from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml

WIDTHS: Final = [2.5, 3.1, 7.6, 0.8]
AS_IT_IS: Final = ""  # None would make the list one that can be cleared
POWERS: Final = [2**exponent for exponent in range(21)]
RULES: Final = {
    AS_IT_IS: "stays the same",
    "linear": "grows linearly",
    "sqrt": "grows with the square root",
    "none": "stays, with a warm-up",
}
RULE_HELP: Final = (
    "The rate then holds for the reference batch and is scaled to the batch of each trial: linearly "
    "(Goyal et al. 2017) or with its square root."
)


def heads() -> None:
    """Titles of the columns."""
    with st.container(key="dimension-heads"):
        for place, word in zip(st.columns(WIDTHS), ("Field", "Scale", "From … to, or values", ""), strict=True):
            with place:
                html.draw(f'<div class="sb-eyebrow">{escape(word)}</div>')


def draw(field: SearchField, row: Mapping[str, Any], key: str) -> Row | None:
    """The row; returns what it says now, None when it is to go. Keys of the row that have no widget stay."""
    name, choice, values, end = st.columns(WIDTHS, vertical_alignment="center")
    with name:
        html.draw(_title(field))
    before = kind_of(row)
    kinds: list[Kind] = list(dict.fromkeys([*([before] if before else []), *field.kinds]))
    with choice:
        kind = st.selectbox(f"Kind of {field.name}", kinds, format_func=KINDS.__getitem__, key=f"{key}.kind",
                            label_visibility="collapsed")  # fmt: skip
    with end:
        if st.button(":material/close:", key=f"{key}.remove", type="tertiary", help=f"Do not vary {field.name}"):
            return None
    start = dict(row) if kind == before else {**first_row(field, kind), **_kept(row)}
    widgets = f"{key}.{kind}"
    with values:
        listed = kind in ("grid", "values")
        start[kind] = (_list if listed else _ends)(field, kind, start[kind], widgets)
    if field.name == "learning_rate":
        _rule(start, key)
    return start


def _title(field: SearchField) -> str:
    now = f"now {plain(field.present)}"
    title = field.title.removeprefix("trainer.")
    return f'<div class="sb-dimension"><b>{escape(title)}</b><span class="sb-dim">{escape(now)}</span></div>'


def _kept(row: Mapping[str, Any]) -> Row:
    """What holds for any kind of range: the rule of a learning rate."""
    return {name: value for name, value in row.items() if name in ("rule", "per", "warmup_epochs")}


def _ends(field: SearchField, kind: Kind, written: Any, key: str) -> Any:
    """The two ends of a range; what is not two numbers is shown as text, so that it can be mended."""
    whole = kind in ("int", "powers_of_two")
    numbers = int if whole else int | float
    if not isinstance(written, list) or len(written) != 2 or not all(isinstance(end_, numbers) for end_ in written):
        return _free(f"Range of {field.name}", written, key)
    ends = []
    for end, place, value in zip(("From", "To"), st.columns(2), written, strict=True):
        label = f"{end}, {field.name}"
        with place:
            if kind == "powers_of_two" and value in POWERS:
                ends.append(st.selectbox(label, POWERS, POWERS.index(value), key=f"{key}.{end}",
                                          format_func="{:,}".format, label_visibility="collapsed"))  # fmt: skip
            else:
                ends.append(number_box(label, value, f"{key}.{end}", whole=whole, hidden=True))
    return ends


def _list(field: SearchField, kind: Kind, written: Any, key: str) -> Any:
    """Choices to tick where the field has names for them, else a list in words: `16, 32, 64`."""
    label = f"Values of {field.name}"
    known = field.field.choices if field.field.type in ("enum", "class") else []
    if field.field.type == "bool":
        known = [True, False]
    if kind == "values" and known and isinstance(written, list) and all(value in known for value in written):
        return st.multiselect(label, known, written, key=key, format_func=plain, label_visibility="collapsed",
                              placeholder="Choose some")  # fmt: skip
    return _free(label, written, key)


def _free(label: str, written: Any, key: str) -> Any:
    """Several values with commas between them; what is no YAML comes back as text, which the validation refuses."""
    shown = ", ".join(plain(value) for value in written) if isinstance(written, list) else plain(written)
    said = st.text_input(label, shown, key=key, label_visibility="collapsed", placeholder="16, 32, 64")
    try:
        return yaml.load(f"[{said}]")
    except ConfigError:
        return said


def _rule(row: Row, key: str) -> None:
    """What happens to the learning rate when the batch size changes."""
    _, rule_column, per_column, warmup_column = st.columns([0.4, 5.2, 3.8, 4.6], vertical_alignment="bottom")
    before = str(row.get("rule") or AS_IT_IS)
    with rule_column:
        rules = [rule for rule in RULES if rule != "none" or before == "none"]
        index = rules.index(before) if before in rules else 0
        rule = st.selectbox("With the batch, the rate", rules, index, format_func=RULES.__getitem__,
                            key=f"{key}.rule", help=RULE_HELP)  # fmt: skip
    if rule == AS_IT_IS:
        for name in ("rule", "per", "warmup_epochs"):
            row.pop(name, None)
        return
    row["rule"] = rule
    with per_column:
        row["per"] = number_box("Reference batch", row.get("per", 256), f"{key}.per", whole=True,
                                     hint="Batch size that the rate is given for.")  # fmt: skip
    with warmup_column:
        epochs = number_box("Warm-up, epochs", row.get("warmup_epochs", 0), f"{key}.warmup", empty="none",
                                 hint="Epochs over which the rate rises to its scaled value.")  # fmt: skip
    if epochs or "warmup_epochs" in row:
        row["warmup_epochs"] = epochs
