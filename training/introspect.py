"""A class's constructor as described fields: types, bounds, choices and defaults, and help from its docstring."""

import inspect
import json
import re
from typing import Any, Literal

from jsonargparse import ArgumentParser

from training.spec.description import ClassInfo, Field, FieldType

Source = Literal["scalebook", "library", "user"]
JSON_TYPES: dict[str, FieldType] = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
}

ARGS = re.compile(r"^(Args|Arguments|Attributes|Example):", re.MULTILINE)


def describe_class(
    kind: type,
    class_path: str,
    source: Source,
    *,
    skip: frozenset[str] = frozenset(),
    basic: frozenset[str] | None = None,
    **more: Any,
) -> ClassInfo:
    """What a config may say of `kind`. `basic` names the fields that are not advanced (default: all simple ones)."""
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    return ClassInfo(
        class_path=class_path,
        name=class_path.rsplit(".", 1)[-1],
        summary=_words(summary),
        help=ARGS.split(f"\n{rest}", maxsplit=1)[0].strip() if source != "library" else "",
        source=source,
        fields=fields_of(kind, skip=skip, basic=basic),
        **more,
    )


def fields_of(kind: type, *, skip: frozenset[str] = frozenset(), basic: frozenset[str] | None = None) -> list[Field]:
    """The constructor's arguments; raises whatever jsonargparse raises for a signature that it cannot read."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, skip=set(skip))
    schema = json.loads(parser.get_completion_script("jsonschema"))
    required = set(schema.get("required", []))
    properties = {name: told for name, told in schema["properties"].items() if name != "$schema"}
    return [field_from_schema(name, told, name in required, basic) for name, told in properties.items()]


def field_from_schema(name: str, told: dict[str, Any], required: bool, basic: frozenset[str] | None) -> Field:
    """One field from one property of a JSON schema (Draft 2020-12)."""
    options = _options(told)
    nullable = any(one.get("type") == "null" for one in options)
    options = [one for one in options if one.get("type") != "null"]
    choices = [choice for one in options for choice in one.get("enum", [])]
    kinds = {_kind(one) for one in options}
    kind: FieldType = "float" if kinds == {"int", "float"} else kinds.pop() if len(kinds) == 1 else "json"
    default = told.get("default")
    bounded = options[0] if len(options) == 1 else {}
    low, high = bounded.get("exclusiveMinimum"), bounded.get("exclusiveMaximum")
    simple = kind not in ("json", "list") or default is not None
    return Field(
        name=name,
        type=kind,
        help=_help(told.get("description", "")),
        required=required,
        nullable=nullable or (not required and default is None and "default" in told),
        default=default,
        choices=list(dict.fromkeys(choices)) if kind == "enum" else [],
        minimum=low if low is not None else bounded.get("minimum"),
        maximum=high if high is not None else bounded.get("maximum"),
        exclusive_minimum=low is not None,
        exclusive_maximum=high is not None,
        advanced=not required and (name not in basic if basic is not None else not simple),
    )


def _options(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a property, without references to tensors and other objects that YAML cannot hold."""
    if "anyOf" in told:
        return [
            option
            for one in told["anyOf"]
            for option in _options(one)
            if "$ref" not in one or len(told["anyOf"]) == 1 or "Tensor" not in one["$ref"]
        ]
    if isinstance(told.get("type"), list):
        return [{**told, "type": one} for one in told["type"]]
    return [told]


def _kind(option: dict[str, Any]) -> FieldType:
    if "enum" in option:
        return "enum"
    return JSON_TYPES.get(option.get("type", ""), "json")


def _help(text: str) -> str:
    """Without the default, which the form shows itself, and without reStructuredText's quotes."""
    text = _words(text).replace("``", "`")
    text = re.sub(r":\w+:`[~.]?([^`]+)`", r"`\1`", text)
    text = re.sub(r"\s*\(default: [^()]*(\([^()]*\))?[^()]*\)", "", text)
    return re.sub(r"\s*Default: `?[^`.]*`?(\.\d+)?\.?$", "", text).strip()


def _words(text: str) -> str:
    return " ".join(text.split())
