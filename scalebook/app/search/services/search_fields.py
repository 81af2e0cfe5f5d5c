"""What of a config can be varied, and with which ranges one would begin."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.app.shared.words import plain
from scalebook.training.config import paths
from scalebook.training.config.classes import mapping
from scalebook.training.config.description import Description, Field
from scalebook.training.config.search.point import STRATEGIES
from scalebook.training.config.search.space import Kind
from scalebook.training.config.workload import workload

Row = dict[str, Any]
"""One dimension as the cell says it: `{"log_uniform": [0.001, 1.0], "rule": "linear", "per": 256}`."""

KINDS: Final[dict[Kind, str]] = {
    "log_uniform": "logarithmic",
    "uniform": "linear",
    "int": "whole numbers",
    "powers_of_two": "powers of two",
    "grid": "numbers",
    "values": "choices",
}
BY_HANDLE: Final = (
    "data.batch_size",
    "optimizer.lr",
    "trainer.strategy.workers",
    "trainer.devices",
    "trainer.max_time",
)
"""Paths for which there is a handle, or which a search itself sets."""


@dataclass(frozen=True)
class SearchField:
    """Something that can be varied. `name` is how the cell calls it: a handle (`batch_size`) or a dotted path."""

    name: str
    title: str
    present: Any
    field: Field
    """Type, bounds and choices of its values."""

    @property
    def label(self) -> str:
        """Its entry in the list of fields, with the present value: `model.hidden  (now 64)`."""
        shown = self.title if self.title == self.name else f"{self.title}, {self.name}"
        return f"{shown}  (now {plain(self.present)})"

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of range that suit it, the most useful one first."""
        if self.name in ("batch_size",):
            return ["powers_of_two", "int", "grid", "values"]
        if self.name == "workers":
            return ["values", "int", "powers_of_two"]
        if self.field.type == "int":
            return ["int", "powers_of_two", "grid", "values"]
        if self.field.type == "float":
            wide: list[Kind] = ["log_uniform", "uniform", "grid", "values"]
            bounded = self.field.minimum is not None and self.field.maximum is not None
            return ["uniform", "log_uniform", "grid", "values"] if bounded else wide
        return ["values"]


def search_fields(config: Mapping[str, Any], description: Description) -> list[SearchField]:
    """All that can be varied in this config: the handles first, then every argument of every class it names."""
    return [*_handles(config, description), *_paths(config, description)]


def _handles(config: Mapping[str, Any], description: Description) -> list[SearchField]:
    load = workload(config, description)
    fields: list[SearchField] = []
    if load.batch_per_worker is not None:
        batch = Field("batch_size", "int", "Samples per batch.", minimum=1)
        fields.append(SearchField("batch_size", "Batch size", load.batch_global, batch))
    if load.learning_rate is not None:
        rate = Field("learning_rate", "float", "Learning rate of the optimizer.", minimum=0, exclusive_minimum=True)
        fields.append(SearchField("learning_rate", "Learning rate", load.learning_rate, rate))
    words = [*STRATEGIES, *(strategy.class_path for strategy in description.strategies if strategy.source == "user")]
    now = load.strategy if load.rule is None or load.strategy == "ddp" else load.rule.partition(",")[0]
    fields.append(SearchField("strategy", "Strategy", now, Field("strategy", "enum", choices=words)))
    workers = Field("workers", "int", "Processes that compute gradients.", minimum=1, maximum=1024)
    return [*fields, SearchField("workers", "Workers", load.workers, workers)]


def _paths(config: Mapping[str, Any], description: Description) -> Iterator[SearchField]:
    for path, field in paths.fields(config, description):
        if path not in BY_HANDLE and not (field.type == "json" and path.startswith("trainer.")):
            yield SearchField(path, path, _now(config, path, field), field)


def _now(config: Mapping[str, Any], path: str, field: Field) -> Any:
    """What the config says at a path in which `init_args` is left out, or the field's default."""
    value: Any = config
    for key in path.split("."):
        if isinstance(value, Mapping) and "class_path" in value:
            value = mapping(value.get("init_args"))
        if not isinstance(value, Mapping) or key not in value:
            return field.default
        value = value[key]
    return value


def kind_of(row: Mapping[str, Any]) -> Kind | None:
    """The kind that a row names; None where it names none."""
    return next((kind for kind in KINDS if kind in row), None)


def first_row(field: SearchField, kind: Kind | None = None) -> Row:
    """A range around what the config says now, as a beginning."""
    kind = kind or field.kinds[0]
    if kind == "values":
        return {"values": _choices(field)}
    now = field.present if isinstance(field.present, int | float) and not isinstance(field.present, bool) else 1
    if kind == "powers_of_two":
        middle = max(1, 2 ** round(math.log2(max(1, now))))
        return {"powers_of_two": [max(1, middle // 8), middle * 8]}
    if kind == "int":
        return {"int": _inside(field.field, [max(1, int(now) // 4), max(4, int(now) * 4)])}
    if kind == "grid":
        whole = field.field.type == "int"
        return {"grid": [int(now), int(now) * 2, int(now) * 4] if whole else [now / 10, now, now * 10]}
    if kind == "log_uniform":
        low, high = _inside(field.field, [_rounded(now / 30) or 1e-4, _rounded(now * 30) or 1.0])
        return {"log_uniform": [low if low > 0 else high / 1000, high]}
    return {"uniform": _inside(field.field, [0.0, _rounded(now * 2) or 1.0])}


def _choices(field: SearchField) -> list[Any]:
    described = field.field
    if field.name == "strategy":
        return ["single", "ddp", "async"]
    if field.name == "workers":
        return [1, 2]
    if described.type == "bool":
        return [True, False]
    if described.type == "class":
        few = [option for option in described.classes if described.group != "modules" or option.source == "user"]
        return list(described.choices) or [option.class_path for option in few]  # not all of torch.nn
    return list(described.choices) or [field.present]


def _rounded(value: float) -> float:
    """`value` to one digit: 0.0333 -> 0.03."""
    return float(f"{value:.1g}")


def _inside(field: Field, pair: Sequence[Any]) -> list[Any]:
    low, high = pair
    if field.minimum is not None:
        low = max(low, type(low)(field.minimum))
    if field.maximum is not None:
        high = min(high, type(high)(field.maximum))
    return [low, max(low, high)]
