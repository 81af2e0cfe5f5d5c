"""One value against one described field: type, bounds, choices, and the settings of a class."""

import math
from collections.abc import Mapping
from typing import Any

from scalebook.training.base import Problem
from scalebook.training.experiments.classes import NamedClass, choose_class, few_strangers, read_class, suggestion
from scalebook.training.experiments.description import ClassInfo, Field
from scalebook.training.experiments.former_arguments import NOW

WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a string", "list": "a list"}
MOST_WORDS = 20
"""Names of classes in a message; `torch.nn` has 160."""


def check_value(key: str, value: Any, field: Field) -> Problem | None:
    """The first thing that is wrong with `value` at `key`, if anything."""
    if value is None:
        if field.nullable or (not field.required and field.default is None):
            return None
        return Problem(
            "missing",
            key,
            "is empty",
            f"Use {expected(field)}, or remove the key." if not field.required else f"Use {expected(field)}.",
        )
    if field.type == "enum":
        if any(value == choice and type(value) is type(choice) for choice in field.choices):
            return None
        names = [str(choice) for choice in field.choices]
        return Problem(
            "unknown-value",
            key,
            f"{quoted_value(value)} is not one of {', '.join(names)}",
            suggestion(str(value), names),
        )
    if field.type == "class" or field.group is not None:
        return next(iter(_check_classes(key, value, field)), None)
    if not _has_type(value, field):
        return Problem(
            "wrong-type",
            key,
            f"{quoted_value(value)} is not {WORDS.get(field.type, field.type)}",
            f"Use {expected(field)}.",
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and not _in_bounds(value, field):
        return Problem("out-of-bounds", key, f"{quoted_value(value)} is out of bounds", f"Use {expected(field)}.")
    return None


def check_args(
    key: str, args: Mapping[str, Any], fields: list[Field], *, partial: bool = False, of: str = ""
) -> list[Problem]:
    """What is wrong with the arguments below `key`, of the class `of`; `partial` allows required ones to be missing."""
    by_name = {field.name: field for field in fields}
    args, more = few_strangers(args, by_name)
    problems = (
        [Problem("unknown-argument", key, f"has {more} unknown arguments in addition to those listed", "Remove them.")]
        if more
        else []
    )
    for name, value in args.items():
        if name not in by_name:
            fix = NOW.get((of, str(name))) or suggestion(str(name), by_name)
            problems.append(Problem("unknown-argument", f"{key}.{name}", "is not an argument", fix))
        elif (by_name[name].type == "class" or by_name[name].group is not None) and value is not None:
            problems += _check_classes(f"{key}.{name}", value, by_name[name])
        elif problem := check_value(f"{key}.{name}", value, by_name[name]):
            problems.append(problem)
    if not partial:
        missing = [field for field in fields if field.required and field.name not in args]
        problems += [
            Problem("missing", f"{key}.{field.name}", "is missing", f"Use {expected(field)}.") for field in missing
        ]
    return problems


def _check_classes(key: str, value: Any, field: Field) -> list[Problem]:
    """As `_check_class`; of a field that holds classes among other things, each of them."""
    if field.type == "class":
        return _check_class(key, value, field)
    if not _has_type(value, field):
        return [
            Problem("wrong-type", key, f"{quoted_value(value)} is not {WORDS[field.type]}", f"Use {expected(field)}.")
        ]
    return _check_held(key, value, field)


def _check_held(key: str, value: Any, field: Field) -> list[Problem]:
    if isinstance(value, Mapping) and "class_path" in value:
        return _check_class(key, value, field)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [problem for name, item in items for problem in _check_held(f"{key}.{name}", item, field)]


def _check_class(key: str, value: Any, field: Field) -> list[Problem]:
    """What is wrong with a value that should name one of the field's classes, and with the arguments it gives it."""
    reference, problems = check_reference(key, value, expected(field))
    if reference.name is None or reference.args is None:
        return problems
    if (choice := choose_class(value, field)) is None:
        if field.group is not None and _is_elsewhere(reference.name, field):
            return problems
        return [_unknown(key, reference.name, field, is_path=isinstance(value, Mapping))]
    return problems + check_args(f"{key}.init_args", choice.args, choice.info.fields, of=choice.info.name)


def check_reference(key: str, value: Any, example: str) -> tuple[NamedClass, list[Problem]]:
    """What `value` names, and what is wrong with its form: it has a class, arguments as a mapping, and nothing else."""
    named = read_class(value)
    if named.name is None:
        return named, [Problem("wrong-type", key, f"is {quoted_value(value)}, not a class", f"Use {example}.")]
    problems = [
        Problem(
            "misplaced-key", f"{key}.{extra}", "does not belong next to class_path", f"Move it into {key}.init_args."
        )
        for extra in named.extra
    ]
    if named.args is None:
        fix = "Use one `name: value` per line."
        problems.append(Problem("wrong-type", f"{key}.init_args", "is not a mapping", fix))
    return named, problems


def _unknown(key: str, name: str, field: Field, is_path: bool) -> Problem:
    """What is wrong with the name of a class, and what to write."""
    if field.group is not None and (refused := field.refusal(name)) is not None:
        return Problem("refused-class", key, f"names {quoted_value(name)}, which {refused.why}", refused.fix)
    names = [option.name for option in field.classes] if is_path else _words(field)
    fix = suggestion(name, names)
    if len(names) > MOST_WORDS and not fix.startswith("Did"):
        fix = f"Use {expected(field)}."
    if field.group is not None and "." not in name and not fix.startswith("Did"):
        fix = f"{fix} For a class from another library, use the full path of the class."
    return Problem("unknown-class", key, f"unknown class {quoted_value(name)}", fix)


def _is_elsewhere(name: str, field: Field) -> bool:
    """Whether it is the path of a class of a library that the description does not know: only its parser can tell.

    `torch.nn` and the user's modules are known as a whole, `torch.optim` is not.
    """
    package = name.rpartition(".")[0]
    return bool(package) and (field.group != "modules" or package not in {_package(option) for option in field.classes})


def _package(option: ClassInfo) -> str:
    return option.class_path.rpartition(".")[0]


def _words(field: Field) -> list[str]:
    return [option.config_value or option.name for option in field.classes]


def expected(field: Field) -> str:
    """What may be written, as the object of a sentence: `a whole number above 0`."""
    if field.type == "class":
        names = _words(field)
        some = names if len(names) <= MOST_WORDS else [*names[:MOST_WORDS], f"{len(names) - MOST_WORDS} more"]
        return f"one of {', '.join(some)}, or {{class_path: ..., init_args: {{...}}}}"
    if field.type == "enum":
        return f"one of {', '.join(str(choice) for choice in field.choices)}"
    words = WORDS.get(field.type, "a value")
    bounds = []
    if field.minimum is not None:
        bounds.append(f"{'above' if field.exclusive_minimum else 'of at least'} {_number(field.minimum)}")
    if field.maximum is not None:
        bounds.append(
            f"{'below' if field.exclusive_maximum else 'at most' if bounds else 'of at most'} {_number(field.maximum)}"
        )
    return " ".join([words, " and ".join(bounds)]).rstrip()


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e5 or not float(value).is_integer() else str(int(value))


def quoted_value(value: Any) -> str:
    """The value as a message shows it, cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _has_type(value: Any, field: Field) -> bool:
    if isinstance(value, bool):
        return field.type in ("bool", "json")
    accepted: dict[str, type | tuple[type, ...]] = {
        "int": int,
        "float": (int, float),
        "bool": bool,
        "str": str,
        "list": (list, tuple),
    }
    return field.type == "json" or isinstance(value, accepted[field.type])


def _in_bounds(value: float, field: Field) -> bool:
    if math.isnan(value):
        return False
    low, high = field.minimum, field.maximum
    if low is not None and (value < low or (value == low and field.exclusive_minimum)):
        return False
    return not (high is not None and (value > high or (value == high and field.exclusive_maximum)))
