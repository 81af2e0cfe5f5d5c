"""What `optimizer.state` shows in a worker during training: the state in shared memory, copied on access."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

State = dict[str, Any]


class OptimizerStateView(defaultdict[Tensor, State]):
    """Replaces `optimizer.state`, read-only: `read` gives the newest state, `version` says when it changes.

    A copy or pickle of it is a plain state. Writes into it do not reach the run.
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
        """Drop the copy."""
        if self._of is not None:
            super().clear()
            self._of = None

    def plain(self) -> defaultdict[Tensor, State]:
        """The present state as a plain dict."""
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


class StateSwap:
    """Makes an optimizer show the run's state instead of its own, from `show` to `hide`."""

    def __init__(
        self, optimizer: Optimizer, read: Callable[[], Mapping[Tensor, State]], version: Callable[[], object]
    ) -> None:
        """`read` and `version`: as in `OptimizerStateView`."""
        self.optimizer, self._shown = optimizer, OptimizerStateView(read, version)

    @property
    def is_on(self) -> bool:
        return self.optimizer.state is self._shown

    @property
    def is_untouched(self) -> bool:
        """Whether the optimizer's state equals the run's: it is shown, and nobody can have written into a copy."""
        return self.is_on and not self._shown.is_read

    def show(self) -> None:
        """Show the run's state in the optimizer, read-only; during training."""
        self._shown.forget()
        self.optimizer.state = self._shown

    def hide(self, keeps: bool = True) -> None:
        """Undo `show`: the optimizer `keeps` the state shown last, or has none."""
        if self.is_on:
            self.optimizer.state = self._shown.plain() if keeps else defaultdict(dict)
        self._shown.forget()

    def forget(self) -> None:
        """The shown state belongs to an older version; drop it."""
        self._shown.forget()


def copied(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Copies of the tensors, each with storage of its own: a deep copy of a view would copy the whole storage, here all
    of the run's memory."""
    return {key: _copied(value) for key, value in state.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value
