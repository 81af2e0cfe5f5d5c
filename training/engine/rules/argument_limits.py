"""Bounds of a constructor's arguments, declared in its annotations: `bound: Annotated[int, AtLeast(1)]`.

The class refuses values outside them, forms do not offer such values, validation names them, and `scalebook describe`
prints them. `BySettings` is the base of rules, dampings and the like, which are compared by their arguments.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from scalebook.training.engine.rules.argument_error import ArgumentError


@dataclass(frozen=True)
class Bound:
    """A limit of an argument. `use`: what to write instead, if a message can say it better than by the limit."""

    limit: float
    use: str = ""

    holds: ClassVar[Callable[[float, float], bool]]
    broken: ClassVar[str]

    def refuse(self, argument: str, value: float) -> None:
        """ArgumentError if `value`, the value of `argument`, is outside; NaN always is."""
        if not type(self).holds(value, self.limit):
            raise ArgumentError(
                "out-of-bounds",
                argument,
                f"{value} is {self.broken} {self.limit:g}",
                f"Use {self.use or self._fix()}.",
            )

    def _fix(self) -> str:
        return f"a value {self.limit:g}"


class AtLeast(Bound):
    """`limit` or more."""

    holds, broken = operator.ge, "less than"

    def _fix(self) -> str:
        return f"{self.limit:g} or more"


class Above(Bound):
    """More than `limit`."""

    holds, broken = operator.gt, "not above"

    def _fix(self) -> str:
        return f"more than {self.limit:g}"


class Below(Bound):
    """Less than `limit`."""

    holds, broken = operator.lt, "not below"

    def _fix(self) -> str:
        return f"less than {self.limit:g}"


class AtMost(Bound):
    """`limit` or less."""

    holds, broken = operator.le, "more than"

    def _fix(self) -> str:
        return f"{self.limit:g} or less"


NonNegativeInt = Annotated[int, AtLeast(0)]
PositiveInt = Annotated[int, AtLeast(1)]
PositiveFloat = Annotated[float, Above(0)]
CountOrNone = Annotated[int, AtLeast(1, "1 or more, or null")] | None


def declared_limits(kind: type) -> dict[str, tuple[Bound, ...]]:
    """The bounds of each argument that the constructor of the class or of a base annotates; () for most."""
    by_argument: dict[str, tuple[Bound, ...]] = {}
    for base in reversed(kind.__mro__):
        init = inspect.unwrap(vars(base).get("__init__", object.__init__))
        annotations = {name: hint for name, hint in getattr(init, "__annotations__", {}).items() if name != "return"}
        for name, annotation in annotations.items():
            by_argument[name] = tuple(_within(_resolved(annotation, init.__globals__)))
    return by_argument


def check_limits(kind: type, given: Mapping[str, Any], argument: str = "") -> None:
    """ArgumentError for a number, or one in a tuple, outside its argument's bounds. `argument`: the one that takes the
    object whose arguments are `given`."""
    for name, limits in declared_limits(kind).items():
        value_given = given.get(name)
        values = [
            number
            for number in (value_given if isinstance(value_given, tuple) else (value_given,))
            if isinstance(number, int | float)
        ]
        for limit, value in product(limits, values):
            limit.refuse(f"{argument}.{name}".lstrip("."), value)


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)["it"]
    except NameError:  # a name that is imported for type checkers alone is no number's
        return None


def _within(annotation: Any) -> Iterator[Bound]:
    """The bounds in `Annotated[int, ...]`, also inside a union or a tuple."""
    if get_origin(annotation) is Annotated:
        yield from (bound for bound in annotation.__metadata__ if isinstance(bound, Bound))
    else:
        for arg in get_args(annotation):
            yield from _within(arg)


class BySettings:
    """Keeps each constructor argument in a public attribute of its name; arguments with an underscore are not compared.

    ValueError for arguments outside the bounds that the constructor's annotations declare.
    """

    ARGUMENT: ClassVar[str]
    """The argument of a strategy that takes one of them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = _within_bounds(cls, cls.__init__)  # type: ignore[method-assign]  # the same, behind a check

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BySettings) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((type(self), *self.settings().items()))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({arguments})"


def _within_bounds(kind: type[BySettings], init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def checked(self: BySettings, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(init).bind(self, *args, **kwargs)
        check_limits(kind, given.arguments, kind.ARGUMENT)
        init(self, *args, **kwargs)

    return checked
