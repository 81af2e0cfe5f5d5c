"""One dimension of a search: what values it may take, how they are called, and how a study stores them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments.raw_body import number

Kind = Literal["uniform", "log_uniform", "int", "powers_of_two", "grid", "values"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
RANGES: Final[tuple[Kind, ...]] = ("uniform", "log_uniform", "int", "powers_of_two")
HANDLES: Final = ("batch_size", "learning_rate", "strategy", "workers")
"""Names without a dot, which stand for whatever the config calls them. All others are paths of fields."""


@dataclass(frozen=True)
class Dimension:
    """`low` and `high` are inclusive, and only of ranges; `choices` only of `grid` (ascending) and `values`.

    `points` is how many values a grid visits in a range of numbers. `name` is a handle or a path without `init_args`.
    """

    name: str
    kind: Kind
    low: float = 0
    high: float = 0
    log: bool = False
    step: int = 1
    points: int | None = None
    choices: tuple[Any, ...] = ()

    @property
    def ordered(self) -> bool:
        """Whether one value can be greater than another: all kinds but `values`."""
        return self.kind != "values"

    @property
    def logarithmic(self) -> bool:
        """Whether a chart should draw it on a logarithmic axis."""
        return self.log or self.kind in ("log_uniform", "powers_of_two")

    def label(self, value: Any) -> str:
        """`value` in as few characters as tell it apart, for charts and tables: `0.0123`, `AsyncPS bounded, bound 3`"""
        if isinstance(value, Mapping):
            return _class_label(value, [choice for choice in self.choices if isinstance(choice, Mapping)])
        if isinstance(value, float):
            return f"{value:.3g}"
        return value if isinstance(value, str) else yaml_flow.flow(value)

    def encode(self, value: Any) -> float | int | str:
        """What a study stores: the exponent of a power of two, the place in a grid, the YAML text of a category.

        ValueError where `value` is none of this dimension's.
        """
        if not self.contains(value):
            raise ValueError(f"{self.name}: {yaml_flow.flow(value)} is not among {self.words()}")
        if self.kind == "powers_of_two":
            return int(value).bit_length() - 1
        if self.kind == "grid":
            return next(place for place, choice in enumerate(self.choices) if choice == value)
        if self.kind == "values":
            return yaml_flow.flow(value)
        return int(value) if self.kind == "int" else float(value)

    def decode(self, stored: Any) -> Any:
        """The inverse of `encode`; ValueError for a category that is none of this dimension's."""
        if self.kind == "powers_of_two":
            return 2 ** int(stored)
        if self.kind == "grid":
            return self.choices[int(stored)]
        if self.kind == "values":
            matching = [choice for choice in self.choices if yaml_flow.flow(choice) == stored]
            if not matching:
                raise ValueError(f"{self.name}: {stored!r} is none of {self.words()}")
            return matching[0]
        return int(stored) if self.kind == "int" else float(stored)

    def contains(self, value: Any) -> bool:
        """Whether `value` can be a point's; of a number its type matters only where YAML would tell them apart."""
        if self.kind == "values":
            return any(yaml_flow.same(choice, value) for choice in self.choices)
        if not number(value):
            return False
        if self.kind == "grid":
            return any(choice == value for choice in self.choices)
        if not self.low <= value <= self.high:
            return False
        if self.kind == "powers_of_two":
            return power_of_two(value)
        return self.kind != "int" or (value == int(value) and (int(value) - int(self.low)) % self.step == 0)

    def ends(self) -> list[Any]:
        """The lowest and the highest value; every one of `values`."""
        if self.kind == "values":
            return list(self.choices)
        if self.kind == "grid":
            return [self.choices[0], self.choices[-1]] if len(self.choices) > 1 else list(self.choices)
        high = self.high if self.kind != "int" else self.low + (self.high - self.low) // self.step * self.step
        return [self.low, high] if high != self.low else [self.low]

    def grid(self) -> list[Any]:
        """The values that a grid sampler visits, in order. A range of real numbers must have `points`."""
        if self.kind in ("grid", "values"):
            return list(self.choices)
        if self.kind == "powers_of_two":
            return [2**exponent for exponent in range(exponent_of(self.low), exponent_of(self.high) + 1)]
        whole = self.kind == "int"
        if whole and self.points is None:
            return list(range(int(self.low), int(self.high) + 1, self.step))
        assert self.points is not None, f"{self.name} has no points"
        spaced = [_between(self.low, self.high, place, self.points, self.logarithmic) for place in range(self.points)]
        if not whole:
            return list(dict.fromkeys(spaced))
        on_step = [int(self.low) + round((value - self.low) / self.step) * self.step for value in spaced]
        return list(dict.fromkeys(value for value in on_step if value <= self.high))

    def grid_size(self) -> int | None:
        """How many values a grid visits; None for a range of real numbers without `points`."""
        if self.points is None and self.kind in ("uniform", "log_uniform"):
            return None
        if self.points is None and self.kind == "int":
            return (int(self.high) - int(self.low)) // self.step + 1  # without making them: there may be millions
        return len(self.grid())  # as many as it names, or `points`, which are 100,000 at most

    def words(self) -> str:
        """The whole of it: `16 ... 1024`, `single, ddp, async`."""
        if self.choices:
            return ", ".join(self.label(choice) for choice in self.choices)
        return f"{self.label(self.low)} ... {self.label(self.high)}"

    def body(self) -> dict[str, Any]:
        """The dimension as a search writes it below `space:`."""
        if self.choices:
            return {self.kind: list(self.choices)}
        body: dict[str, Any] = {self.kind: [self.low, self.high]}
        if self.log:
            body["log"] = True
        if self.step != 1:
            body["step"] = self.step
        return body if self.points is None else {**body, "points": self.points}


def decode_point(space: Iterable[Dimension], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The point that a study has stored, by dimension, in the order of `space`; a part of one where that is stored."""
    return {dimension.name: dimension.decode(stored[dimension.name]) for dimension in space if dimension.name in stored}


def power_of_two(value: float) -> bool:
    """Whether `value` is 1, 2, 4, ..."""
    return value >= 1 and value == int(value) and int(value) & (int(value) - 1) == 0


def exponent_of(power: float) -> int:
    """0 for 1, 1 for 2, 2 for 4."""
    return int(power).bit_length() - 1


def _between(low: float, high: float, place: int, points: int, log: bool) -> float:
    """Number `place` of `points` from `low` to `high`, both of them exactly."""
    if place == 0 or points == 1:
        return float(low)
    if place == points - 1:
        return float(high)
    share = place / (points - 1)
    value = low * (high / low) ** share if log else low + (high - low) * share
    return float(min(max(value, low), high))


def _class_label(value: Mapping[str, Any], choices: Sequence[Mapping[str, Any]] = ()) -> str:
    """`{class_path: a.B, init_args: {c: 1}}` as `B c=1`, without the arguments that are the same in all `choices` of
    this class, where there are several; any other mapping as YAML."""
    if not isinstance(value.get("class_path"), str):
        return yaml_flow.flow(value)
    name = value["class_path"].rsplit(".", 1)[-1]
    args = value.get("init_args")
    items = args.items() if isinstance(args, Mapping) else []
    alike = [
        choice.get("init_args") or {} for choice in choices if str(choice.get("class_path")).rsplit(".", 1)[-1] == name
    ]
    if len(choices) > 1:
        items = [(key, one) for key, one in items if any(other.get(key) != one for other in alike)]
    return " ".join([name, *(f"{key}={_argument_label(value_)}" for key, value_ in items)])


def _argument_label(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({_class_label(value)})"
    return value if isinstance(value, str) else f"{value:.3g}" if isinstance(value, float) else yaml_flow.flow(value)
