"""What the processes of one run share cannot be copied out of it."""

from collections.abc import Iterator
from typing import Any


class Uncopied:
    """In a copy or a pickle of whatever holds such a thing there is None in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class UncopiedIterator(Uncopied):
    """An iterator over what is drawn from the others, so as not to be copied either."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._items)
