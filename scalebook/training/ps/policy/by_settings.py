"""The base of rules, dampings and their like: value objects, compared, hashed and shown by what makes them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from scalebook.training.ps.policy.bounds import check


class BySettings:
    """Each constructor argument is kept in a public attribute of its name; those with an underscore are not compared.

    A constructor is called with arguments within the bounds that its annotations declare; ValueError for others.
    """

    KEY: ClassVar[str]
    """Where a config names one of them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = _within_bounds(cls, cls.__init__)  # type: ignore[method-assign]  # the same, behind a check

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, by name."""
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
        check(kind, given.arguments, f"{kind.KEY}.init_args")
        init(self, *args, **kwargs)

    return checked
