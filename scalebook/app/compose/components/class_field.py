"""A field whose value is one of several classes: a choice with the classes' own words, and their settings below it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import streamlit as st

from scalebook.app.compose.components import fields
from scalebook.app.shared import form
from scalebook.training.config.class_fields import chosen, short
from scalebook.training.config.classes import named
from scalebook.training.config.description import ClassInfo, Field
from scalebook.training.config.workload import STRATEGY_NAMES
from scalebook.training.errors import one_line

DrawField = Callable[[str, Field], Any]
"""Draws the field at a dotted path, writes what it says into the config, and returns it."""


def draw(
    config: form.Config,
    path: str,
    field: Field,
    key: str,
    label: str | None,
    inner: DrawField,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Draw the field and, by `inner`, the settings of the class it names; writes the shortest words for it at `path`.

    `labels`: by class path, what stands for a class in the list of choices instead of its name.

    A value that names none of the classes is shown as text, so that it can be mended.
    """
    value = form.value_of(config, path, field)
    if value is not None and chosen(value, field) is None:
        said = fields.free(label or fields.words(field.name), value, key, fields.help_of(field))
        form.assign(config, path, field, said)
        return said
    info = _choice(field, value, key, label, labels)
    if info is None:
        form.assign(config, path, field, None)
        return None
    before = chosen(value, field)
    args = copy.deepcopy(dict(before.args)) if before is not None and before.info == info else {}
    form.put(config, path, {"class_path": info.class_path, "init_args": args})
    if info.summary:
        st.caption(info.summary)
    for argument in info.fields:
        inner(f"{path}.init_args.{argument.name}", argument)
    said = short(form.get(config, path), field)
    form.assign(config, path, field, said)
    return said


def _choice(field: Field, value: Any, key: str, label: str | None, labels: Mapping[str, str]) -> ClassInfo | None:
    options: list[ClassInfo | None] = [None, *field.classes] if field.nullable else [*field.classes]
    before = chosen(value, field)
    index = options.index(before.info if before else None) if before or field.nullable else None
    info: ClassInfo | None = st.selectbox(
        label or fields.words(field.name),
        options,
        index,
        format_func=lambda info_: "none" if info_ is None else labels.get(info_.class_path, _name(info_)),
        key=key,
        help="\n\n".join([fields.help_of(field), *(_line(option) for option in field.classes if option.summary)]),
        placeholder="none" if field.nullable else "Choose one",
    )
    return info


def own_first(entries: Sequence[ClassInfo]) -> list[ClassInfo]:
    """The person's classes before ours, each in their order."""
    return sorted(entries, key=lambda info: info.source != "user")


def label_of(info: ClassInfo) -> str:
    """The class in a list of choices: `PixelCNN`, `Mine (yours)`; with its module, `Digits (yours, my_lab.data)`, where
    two classes have one name."""
    name = "single" if info.config_value == "auto" else info.config_value or info.name
    words = STRATEGY_NAMES.get(name, info.name)
    module, _, alone = words.rpartition(".")
    whose = ", ".join(word for word in ("yours" if info.source == "user" else "", module) if word)
    return (alone if module else words[:1].upper() + words[1:]) + (f" ({whose})" if whose else "")


def written(value: Any) -> str:
    """The text in a choice while its value is none of the options: the name of the unknown class."""
    return one_line(named(value).name or "", 60) or "Choose one"


def _name(info: ClassInfo) -> str:
    return info.config_value or info.name


def _line(info: ClassInfo) -> str:
    return f"**{_name(info)}**: {info.summary}"
