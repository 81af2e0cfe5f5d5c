"""One field of a described class as a widget: type, bounds, choices, default and help come from the description."""

from typing import Any

import streamlit as st

from scalebook.app.shared import form
from scalebook.app.shared.widgets import number_box, number_text
from scalebook.app.shared.words import plain
from scalebook.training.config.description import Field
from scalebook.training.config.fields import check_value
from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml

UNITS = {"s": "s", "ms": "ms", "mb": "MB", "gb": "GB"}


def draw(config: form.Config, path: str, field: Field, key: str, label: str | None = None) -> Any:
    """The widget for `field`, starting from what the config says at `path`; writes what it says now, and returns it."""
    value = widget(field, form.value_of(config, path, field), key, label)
    form.assign(config, path, field, value)
    return value


def widget(field: Field, value: Any, key: str, label: str | None = None) -> Any:
    """The same, starting from `value`, for who writes it down himself.

    What the field's type cannot hold (a config by hand may say anything) is shown as text, so that it can be mended.
    """
    label = label or words(field.name)
    hint = help_of(field)
    if field.type in ("int", "float") and not isinstance(value, list | dict):
        return _number(field, value, label, key, hint)
    if value is not None and check_value(field.name, value, field) is not None:
        return free(label, value, key, hint)
    if field.type == "bool":
        return _bool(field, value, label, key, hint)
    if field.type == "enum":
        return _enum(field, value, label, key, hint)
    if field.type == "str" and (value is None or isinstance(value, str)):
        said = st.text_input(label, value or "", key=key, help=hint, placeholder="none" if field.nullable else "")
        return said or (None if field.nullable or value is None else "")
    return free(label, value, key, hint)


def words(name: str) -> str:
    """`batch_size` -> `Batch size`, `timeout_s` -> `Timeout, s`."""
    known = {"lr": "Learning rate", "seed_everything": "First seed", "gpu_share": "GPU share"}
    stem, _, unit = name.rpartition("_")
    if stem and unit in UNITS:
        return f"{words(stem)}, {UNITS[unit]}"
    return known.get(name) or name.replace("_", " ").strip().capitalize()


def help_of(field: Field) -> str:
    """The docstring's words, then the key, the bounds and the default: a tooltip of two short lines."""
    facts = [f"`{field.name}`"]
    if field.minimum is not None:
        facts.append(f"{'above' if field.exclusive_minimum else 'at least'} {field.minimum:g}")
    if field.maximum is not None:
        facts.append(f"{'below' if field.exclusive_maximum else 'at most'} {field.maximum:g}")
    if not field.required:
        facts.append(f"default {plain(field.default)}")
    return "\n\n".join(part for part in (field.help.strip(), ", ".join(facts)) if part)


def _bool(field: Field, value: Any, label: str, key: str, hint: str) -> bool | None:
    if field.nullable:
        options: list[bool | None] = [None, True, False]
        names = {None: "default", True: "yes", False: "no"}
        return st.selectbox(
            label,
            options,
            options.index(value),
            format_func=names.__getitem__,
            key=key,
            help=hint,
            placeholder=names[None],
        )
    return st.toggle(label, bool(value), key=key, help=hint)


def _enum(field: Field, value: Any, label: str, key: str, hint: str) -> Any:
    options = ([None] if field.nullable and None not in field.choices else []) + field.choices
    index = options.index(value) if value in options else (None if field.required else 0)
    empty = "Choose one" if field.required else plain(field.default)  # what an emptied one means
    return st.selectbox(label, options, index, format_func=plain, key=key, help=hint, placeholder=empty)


def _number(field: Field, value: Any, label: str, key: str, hint: str) -> int | float | str | None:
    """As typed: what is no number is the text itself, which the validation refuses."""
    empty = "none" if field.nullable else ("" if field.default is None else f"{number_text(field.default)} (default)")
    return number_box(label, value, key, whole=field.type == "int", hint=hint, empty=empty)


def free(label: str, value: Any, key: str, hint: str) -> Any:
    """Any YAML on one line. What is no YAML comes back as the text, which the validation then refuses at this field."""
    said = st.text_input(label, _one_line(value), key=key, help=hint, placeholder="none")
    try:
        return yaml.load(said) if said.strip() else None
    except ConfigError:
        return said


def _one_line(value: Any) -> str:
    return "" if value is None else (value if isinstance(value, str) else plain(value))
