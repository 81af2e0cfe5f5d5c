"""A class's constructor as described fields: types, bounds, choices, classes, defaults, and help from its docstring.

An argument may take a part of the training from outside: a `torch.nn.Module`, or a call that makes an optimizer.
Lightning's documentation calls it dependency injection (`net: torch.nn.Module`, `optimizer: OptimizerCallable`).
"""

import importlib
import inspect
import json
import re
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from os import PathLike
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from jsonargparse import ArgumentParser, Namespace
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import TypeAliasType

from scalebook.training.engine.rules import (
    Above,
    AtLeast,
    AtMost,
    Below,
    Bound,
    Codec,
    Damping,
    Local,
    Rule,
    declared_limits,
)
from scalebook.training.experiments.classes import within
from scalebook.training.experiments.description import ClassInfo, Field, FieldType, Group

Source = Literal["scalebook", "library", "user"]
JSON_TYPES: dict[str, FieldType] = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
}
PLAIN: Final = (str, int, float, bool, list, tuple, dict, type(None), Enum, PathLike)
NUMBERS: Final[frozenset[FieldType]] = frozenset({"int", "float"})

NONE: Final[Mapping[str, type]] = MappingProxyType({})
ARGS = re.compile(r"^(Args|Arguments|Attributes|Example):", re.MULTILINE)

PARTS: Final[tuple[tuple[Group, type], ...]] = (
    ("modules", Module),
    ("optimizers", Optimizer),
    ("lr_schedulers", LRScheduler),
)
LISTS: Final = (list, tuple, set)


class Injected(NamedTuple):
    """What such an argument takes, as a `Field` has it."""

    type: FieldType
    nullable: bool
    group: Group | None = None
    choices: list[str] = []  # noqa: RUF012 - of a tuple, and never changed
    given: int = 0


class _Named(NamedTuple):
    """What one annotation names; without a `group` where no config can say more of it than YAML."""

    group: Group | None
    choices: tuple[str, ...] = ()
    given: int = 0


def injected(hint: Any, modules: Mapping[str, type]) -> Injected | None:
    """What an argument takes from outside; None for one of another kind. `modules` are those that a config may name."""
    alternatives = [*_alternatives(hint)]
    nullable = NoneType in alternatives
    alternatives = [alternative for alternative in alternatives if alternative is not NoneType]
    parts = {part for alternative in alternatives for part in _parts(alternative, modules)}
    if not parts:
        return None
    part = parts.pop() if len(parts) == 1 else _Named(None)
    type_: FieldType = "json"
    if len(alternatives) == 1 and part.group is not None:
        direct = _named(alternatives[0], modules) is not None
        type_ = "class" if direct else "list" if get_origin(alternatives[0]) in LISTS else "json"
    return Injected(type_, nullable, part.group, [*part.choices], part.given)


def _alternatives(hint: Any) -> Iterator[Any]:
    """What a union, or a name for one, is made of."""
    if isinstance(hint, TypeAliasType):
        yield from _alternatives(hint.__value__)
    elif get_origin(hint) is Annotated:
        yield from _alternatives(get_args(hint)[0])
    elif get_origin(hint) in (Union, UnionType):
        for arg in get_args(hint):
            yield from _alternatives(arg)
    else:
        yield hint


def _parts(hint: Any, modules: Mapping[str, type]) -> Iterator[_Named]:
    """What is named anywhere in an annotation: `dict[str, torch.nn.Module]`."""
    for alternative in _alternatives(hint):
        if (named := _named(alternative, modules)) is not None:
            yield named
        elif get_origin(alternative) is not type:
            for arg in get_args(alternative):
                yield from _parts(arg, modules)


def _named(hint: Any, modules: Mapping[str, type]) -> _Named | None:
    """What a class, or a call that returns one, stands for; None for an annotation of another kind."""
    if hint is Callable or get_origin(hint) is Callable:
        passed, returned = get_args(hint) or ((), Any)
        classes = [alternative for alternative in _alternatives(returned) if alternative is not NoneType]
        given = 1 if passed is Ellipsis else len(passed)  # of `Callable[..., Module]` jsonargparse takes it to be one
        return _of(classes, modules, given) or _Named(None)
    return _of([hint], modules, given=0)


def _of(classes: Iterable[Any], modules: Mapping[str, type], given: int) -> _Named | None:
    classes = [*classes]
    if not classes:
        return None
    for group, part in PARTS:
        if not all(inspect.isclass(kind) and issubclass(kind, part) for kind in classes):
            continue
        if group != "modules":  # what is to be optimized is passed by a call, so there is no such class without one
            return _Named(group if given and part in classes else None)
        if Module in classes:
            return _Named(group, (), given)
        fitting = tuple(path for path, kind in modules.items() if issubclass(kind, tuple(classes)))
        return _Named(group if fitting else None, fitting, given)
    return None


def describe_class(
    kind: type,
    class_path: str,
    source: Source,
    *,
    skip: frozenset[str] = frozenset(),
    basic: frozenset[str] | None = None,
    packages: Sequence[str] = (),
    inside: frozenset[type] = frozenset(),
    modules: Mapping[str, type] = NONE,
    **more: Any,
) -> ClassInfo:
    """What a config may say of `kind`. `basic` names the fields that are not advanced (default: all simple ones).

    `packages` are the user's modules, whose classes may be values of arguments too; `inside` the abstract classes that
    are being described: a rule made of rules is free YAML. `modules`: by path the subclasses of `torch.nn.Module` that
    may be values.
    """
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    return ClassInfo(
        class_path=class_path,
        name=class_path.rsplit(".", 1)[-1],
        summary=_words(summary),
        help=ARGS.split(f"\n{rest}", maxsplit=1)[0].strip() if source != "library" else "",
        source=source,
        fields=fields_of(kind, skip=skip, basic=basic, packages=packages, inside=inside, modules=modules),
        **more,
    )


def fields_of(
    kind: type,
    *,
    skip: frozenset[str] = frozenset(),
    basic: frozenset[str] | None = None,
    packages: Sequence[str] = (),
    inside: frozenset[type] = frozenset(),
    modules: Mapping[str, type] = NONE,
) -> list[Field]:
    """The constructor's arguments; raises whatever jsonargparse raises for a signature that it cannot read."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, skip=set(skip))
    typed = {action.dest: action for action in parser._actions if hasattr(action, TYPE)}
    injections = {name: injected(getattr(action, TYPE), modules) for name, action in typed.items()}
    for name, into in injections.items():
        if into is not None:  # a schema of it would be one of all classes of all libraries
            setattr(typed[name], TYPE, object)
    schema = _schema(parser, typed)
    required = set(schema.get("required", []))
    context = ClassFacts(
        required, basic, schema.get("$defs", {}), tuple(packages), inside, declared_limits(kind), injections
    )
    properties = {name: property_ for name, property_ in schema["properties"].items() if name != "$schema"}
    for name, property_ in properties.items():
        _plain_default(property_, getattr(typed.get(name), "default", None))
        group = _of_dataclass(property_)
        if group and all("default" in part for part in group.values()):
            property_.setdefault("default", {key: part["default"] for key, part in group.items()})
    return [_field(name, property_, context) for name, property_ in properties.items()]


def argument(annotation: Any, packages: Sequence[str]) -> tuple[ArgumentParser, Field]:
    """A parser of one argument with this annotation, and what a config may say of it."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=annotation)
    schema = _completed(parser)
    context = ClassFacts(set(), None, schema.get("$defs", {}), tuple(packages), frozenset(), {}, {})
    return parser, _field("value", schema["properties"]["value"], context)


TYPE: Final = "_typehint"
"""Attribute in which jsonargparse keeps an argument's annotation, resolved."""


def _schema(parser: ArgumentParser, typed: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments' JSON schema. One of which there is none, since nobody can read the class it names, is anything."""
    try:
        return _completed(parser)
    except Exception:  # noqa: BLE001 - whatever jsonargparse stumbles over in a stranger's class
        hints = {name: getattr(action, TYPE) for name, action in typed.items()}
    for name in hints:
        for other in hints:
            setattr(typed[other], TYPE, hints[name] if other == name else object)
        try:
            _completed(parser)
        except Exception:  # noqa: BLE001 - as above; the others keep their types
            hints[name] = object
    for name, hint in hints.items():
        setattr(typed[name], TYPE, hint)
    return _completed(parser)


def _completed(parser: ArgumentParser) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(parser.get_completion_script("jsonschema"))
    return schema


def _plain_default(schema: dict[str, Any], default: Any) -> None:
    """Replace the text that stands for a default which JSON has not: a class or a function by its path, settings by a
    mapping; of any other object nothing is said."""
    if isinstance(default, Namespace):
        schema["default"] = default.as_dict()
    elif (isinstance(default, type) or inspect.isroutine(default)) and "<" not in default.__qualname__:
        schema["default"] = f"{default.__module__}.{default.__qualname__}"
    elif not isinstance(default, PLAIN) and schema.get("default") == str(default):
        del schema["default"]


def _of_dataclass(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a property that is itself a group of arguments, as a dataclass is; empty for any other."""
    return {name: of_one for name, of_one in schema.get("properties", {}).items() if name != "$schema"}


class ClassFacts(NamedTuple):
    """What is known of a class beside its properties."""

    required: set[str]
    basic: frozenset[str] | None
    definitions: dict[str, Any]
    """Schemas that properties refer to."""
    packages: tuple[str, ...]
    inside: frozenset[type]
    bounds: Mapping[str, Sequence[Bound]]
    """Those of ours, which no schema has."""
    injected: Mapping[str, Injected | None]
    """Of each argument: what it takes, where that is a class, or a call, of a library's."""


class NumberBounds(NamedTuple):
    """A field's bounds, by the names it has for them."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False


def _field(name: str, schema: dict[str, Any], context: ClassFacts) -> Field:
    """One field from one property of a JSON schema (Draft 2020-12)."""
    required, default = name in context.required, schema.get("default")
    if (into := context.injected.get(name)) is not None:
        return Field(
            name, into.type, _help(schema.get("description", "")), required, into.nullable, default, into.choices,
            advanced=not required and context.basic is not None and name not in context.basic,
            group=into.group, given=into.given,
        )  # fmt: skip
    options = _options(schema)
    nullable = any(option.get("type") == "null" for option in options)
    options = [option for option in options if option.get("type") != "null"]
    choices = [choice for option in options for choice in option.get("enum", [])]
    classes = _classes(options, context)
    kinds = {_kind(option) for option in options}
    kind: FieldType = "float" if kinds == {"int", "float"} else kinds.pop() if len(kinds) == 1 else "json"
    kind = "class" if classes else kind
    limits = _limits(options[0] if len(options) == 1 else {}, context.bounds.get(name, ()) if kind in NUMBERS else ())
    simple = kind not in ("json", "list") or default is not None
    return Field(
        name=name,
        type=kind,
        help=_help(schema.get("description", "")),
        required=required,
        nullable=nullable or (not required and default is None and "default" in schema),
        default=default,
        choices=list(dict.fromkeys(choices)) if kind in ("enum", "class") else [],
        **limits._asdict(),
        advanced=not required and (name not in context.basic if context.basic is not None else not simple),
        options=classes,
    )


def _limits(schema: dict[str, Any], declared: Sequence[Bound]) -> NumberBounds:
    """The limits of a number: those that its annotation declares, else its schema's."""
    low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    limits = NumberBounds(schema.get("minimum", low), schema.get("maximum", high), low is not None, high is not None)
    for bound in declared:
        match bound:
            case AtLeast() | Above():
                limits = limits._replace(minimum=bound.limit, exclusive_minimum=isinstance(bound, Above))
            case AtMost() | Below():
                limits = limits._replace(maximum=bound.limit, exclusive_maximum=isinstance(bound, Below))
    return limits


def _classes(options: Sequence[dict[str, Any]], context: ClassFacts) -> list[ClassInfo]:
    """The classes that may be the value of an argument, where its type is an abstract class, or that or some words.

    Each of the words must be the `name` of one of the classes, for whose defaults it then stands. Empty for any other
    argument. A class counts of the abstract one's own package or in one of `context.packages`: whatever else was
    imported into this process is no business of a form's.
    """
    references = [option["$ref"] for option in options if "$ref" in option]
    words = [word for option in options for word in option.get("enum", [])]
    if len(references) != 1 or len(options) != 1 + bool(words):
        return []
    entries = context.definitions.get(references[0].rpartition("/")[2], {}).get("anyOf", [])
    named = [entry["properties"]["class_path"] for entry in entries if "class_path" in entry.get("properties", {})]
    paths = [path_schema["const"] for path_schema in named if "const" in path_schema]  # of a protocol nobody is named
    kinds = {path: kind for path in paths if not is_abstract(kind := _load(path))}
    base = _abstract_base(list(kinds.values()))
    if base is None or base in context.inside:
        return []
    packages = (base.__module__.partition(".")[0], *context.packages)
    classes = [
        describe_class(
            kind,
            path,
            "user" if within(path, context.packages) else "scalebook",
            packages=context.packages,
            inside=context.inside | {base},
            config_value=next((word for word in words if word == vars(kind).get("name")), None),
            rule=kind.facts() if issubclass(kind, Rule) else None,
            damping=kind.facts() if issubclass(kind, Damping) else None,
            codec=kind.facts() if issubclass(kind, Codec) else None,
            local=kind.facts() if issubclass(kind, Local) else None,
        )
        for path, kind in kinds.items()
        if within(path, packages)
    ]
    names = [info.config_value for info in classes]
    if not all(word in names for word in words):
        return []
    return sorted(classes, key=lambda info: words.index(info.config_value) if info.config_value else len(words))


def _abstract_base(kinds: Sequence[type]) -> type | None:
    """The nearest abstract class from which all `kinds` are made; None where there is none."""
    if not kinds:
        return None
    common = [base for base in kinds[0].__mro__ if all(issubclass(kind, base) for kind in kinds)]
    return next((base for base in common if is_abstract(base)), None)


def is_abstract(kind: type) -> bool:
    """Whether it is there to be derived from: with abstract methods, or made from `ABC` directly."""
    return inspect.isabstract(kind) or ABC in kind.__bases__


def _load(path: str) -> type:
    module, _, name = path.rpartition(".")
    kind: type = getattr(importlib.import_module(module), name)
    return kind


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a property, without references to tensors and other objects that YAML cannot hold."""
    if "anyOf" in schema:
        return [
            option
            for alternative in schema["anyOf"]
            for option in _options(alternative)
            if "$ref" not in alternative or len(schema["anyOf"]) == 1 or "Tensor" not in alternative["$ref"]
        ]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": type_} for type_ in schema["type"]]
    return [schema]


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
