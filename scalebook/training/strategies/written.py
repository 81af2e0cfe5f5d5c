"""Arguments of strategies as a config writes them, in Python: `AsyncPS(clock={"gradient_s": 0.05}, host="virtual")`.

A mapping becomes the object that the same lines of a config would, or is refused in the same words, by key and remedy.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from scalebook.training.errors import ConfigError
from scalebook.training.ps.policy.clock import ClockSettings
from scalebook.training.ps.policy.clock_reading import made_clock
from scalebook.training.ps.policy.worker_range import WorkerRange, read_range

T = TypeVar("T")


def read_workers(written: T) -> T:
    """A number, or nothing, as it is; `{min, max}` as a WorkerRange. ValueError for anything else."""
    value: Any = written if isinstance(written, int | WorkerRange | None) else read_range(written)
    return value  # type: ignore[no-any-return]  # T, as the caller annotates its argument


def read_clock_settings(written: ClockSettings | None) -> ClockSettings | None:
    """A mapping, with mappings within it, as ClockSettings. ValueError for anything else."""
    return written if isinstance(written, ClockSettings | None) else made_clock(_plain(written))


def read_object(written: T, annotation: Any, key: str) -> T:
    """`{class_path, init_args}` as the object of one of the classes that the `annotation` allows; anything else as it
    is. A class of the caller's own goes by its whole path."""
    if not isinstance(written, Mapping):
        return written
    # What a strategy that is given objects does without: it needs torch and Lightning alone.
    from scalebook.training.config.class_fields import chosen
    from scalebook.training.config.classes import named
    from scalebook.training.config.fields import check_value
    from scalebook.training.introspect import argument

    value = _plain(written)
    package = _imported(named(value).name, key)
    parser, field = argument(annotation, packages=[package] if package else [])
    if (problem := check_value(key, value, field)) is not None:
        raise ConfigError(problem.key, problem.message, problem.remedy)
    choice = chosen(value, field)
    assert choice is not None, "check_value has found it"
    parsed = parser.parse_object({field.name: {"class_path": choice.info.class_path, "init_args": dict(choice.args)}})
    made: T = parser.instantiate_classes(parsed)[field.name]
    return made


def _imported(name: str | None, key: str) -> str:
    """The module of the class that is called `name`, imported; "" for a short name."""
    module = (name or "").rpartition(".")[0]
    try:
        if module:
            importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            key, f"names {name!r}, whose module cannot be imported ({error})", "Check the path."
        ) from error
    return module


def _plain(value: Any) -> Any:
    """Mappings and sequences of whatever kind (hydra has its own) as dicts and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
