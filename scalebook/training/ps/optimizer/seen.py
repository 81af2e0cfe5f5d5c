"""What `optimizer.state` shows in a worker while it trains: the state in shared memory, copied when asked for."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

State = dict[str, Any]


class ShownState(defaultdict[Tensor, State]):
    """Takes the place of `optimizer.state`, to be read: `read` gives the newest state, `version` says when it changes.

    A copy or pickle of it is a plain state. What is written into it does not reach the run.
    """

    def __init__(self, read: Callable[[], Mapping[Tensor, State]], version: Callable[[], object]) -> None:
        super().__init__(dict)
        self._read, self._version = read, version
        self._of: object = None

    @property
    def is_read(self) -> bool:
        """Whether somebody has read it, and may have written into the copy."""
        return self._of is not None

    def forget(self) -> None:
        """Give up what was copied."""
        if self._of is not None:
            super().clear()
            self._of = None

    def plain(self) -> defaultdict[Tensor, State]:
        """What it shows now."""
        self._renew()
        return defaultdict(dict, super().items())

    def _renew(self) -> None:
        now = self._version()
        if now != self._of:
            super().clear()
            super().update(self._read())
            self._of = now

    def __reduce__(self) -> tuple[Any, ...]:
        return defaultdict, (dict, self.plain())

    def __getitem__(self, parameter: Tensor) -> State:
        self._renew()
        return super().__getitem__(parameter)

    def __contains__(self, parameter: object) -> bool:
        self._renew()
        return super().__contains__(parameter)

    def __iter__(self) -> Iterator[Tensor]:
        self._renew()
        return super().__iter__()

    def __len__(self) -> int:
        self._renew()
        return super().__len__()

    def get(self, parameter: Tensor, default: Any = None) -> Any:
        self._renew()
        return super().get(parameter, default)

    def keys(self) -> Any:
        self._renew()
        return super().keys()

    def values(self) -> Any:
        self._renew()
        return super().values()

    def items(self) -> Any:
        self._renew()
        return super().items()


def copied(state: dict[int, Any]) -> dict[int, Any]:
    """Each tensor by itself: a deep copy of a view has the whole storage in it, here all of the run's memory."""
    return {
        place: {name: value.clone() if isinstance(value, Tensor) else value for name, value in kept.items()}
        for place, kept in state.items()
    }
