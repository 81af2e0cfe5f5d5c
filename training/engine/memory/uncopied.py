"""Objects that belong to the processes of one run and are left out of copies."""

from collections.abc import Iterator
from typing import Any


class Uncopied:
    """A copy or pickle of whatever holds such an object has None in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class UncopiedIterator(Uncopied):
    """An iterator over `Uncopied` objects, left out of copies too."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._items)
