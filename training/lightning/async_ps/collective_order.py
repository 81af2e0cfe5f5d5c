"""Which workers take part in a collective. That depends on the hook and the run's configuration alone, so every worker
decides the same. docs/concepts/training.md has the table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import update_wrapper
from types import MethodType
from typing import Any, Final
from zlib import crc32

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.package import Callback, Checkpoint, EarlyStopping, Timer, Trainer

OF_ONE_WORKER: Final = (Checkpoint, EarlyStopping, Timer)
"""Lightning's callbacks that decide for their own worker: only worker 0 has the first two, and each worker has its own
timer."""
_CALLS_OF_ONE_METRIC: Final = 64
"""Places reserved for each metric of an epoch: a call for each of its states."""


class Stage(Enum):
    """The stage of a worker's fit."""

    PREPARING = "preparing"  # data, in worker 0 alone
    BEFORE = "before training"
    TRAINING = "training"
    AFTER = "after training"


class CollectiveOrder:
    """A worker's present position in its fit. The strategy sets `stage`."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.stage = trainer, Stage.PREPARING
        self._last: tuple[int, ...] = ()
        self._calls = 0  # since `_last`
        self._apart = 0  # > 0: a callback that decides for its own worker runs
        self._metric: int | None = None  # the first place of the metric that is computed at the end of the epoch

    def is_alone(self, is_metric: bool = False) -> bool:
        """Whether no other worker makes this call. `is_metric`: the call reduces logged values (`reduce`, or the state
        of a torchmetric).

        Only worker 0 prepares data and validates. Outside hooks Lightning calls for its own worker, except for the rest
        of an epoch's metrics after its hooks; callbacks that decide for their own worker may read these too.
        """
        if self.stage is Stage.PREPARING or not self._trainer.training:
            return True
        if is_metric and self._is_epoch_over:
            return False
        if self._apart:
            return True
        return self._hook is None and (is_metric or self.stage is not Stage.BEFORE)

    @property
    def logs(self) -> bool:
        """Whether every worker may log in the present hook, in an epoch that ends for all workers together."""
        begun = self.stage is Stage.TRAINING or self._hook == "on_train_start"
        return self._hook is not None and begun and self._trainer.training

    @property
    def _hook(self) -> str | None:
        """The hook of callbacks, module or strategy that runs; of nested ones the innermost."""
        module = self._trainer.lightning_module
        return None if module is None else module._current_fx_name

    @property
    def _is_epoch_over(self) -> bool:
        """Whether the epoch's last batch is over, and its metrics are not forgotten yet."""
        return self.stage is Stage.TRAINING and self._where()[1:] == (worker_end.Boundary.END,)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let this worker answer collectives alone meanwhile."""
        self._apart += 1
        try:
            yield
        finally:
            self._apart -= 1

    @contextmanager
    def at_metric(self, name: str) -> Iterator[None]:
        """Number calls meanwhile by the places of this metric of the epoch: the same in every worker, whatever other
        metrics it has."""
        self._metric, self._calls = number_of_metric(name), -1
        try:
            yield
        finally:
            self._metric, self._last = None, ()

    def past_metrics(self) -> int:
        """The place after all metrics of this epoch, where all workers have computed them."""
        return worker_end.boundary(self._where()[0], worker_end.Boundary.METRICS, worker_end.POSITIONS - 1)

    def next(self) -> int:
        """The number of this call's place, for `MessageExchange.all_gather`; it counts the calls made in one place."""
        if self.stage is Stage.AFTER:
            return worker_end.AFTER
        where = self._where()
        if self._metric is not None:
            self._calls += 1
            call = min(self._calls, _CALLS_OF_ONE_METRIC - 1)
            return worker_end.boundary(
                where[0], worker_end.Boundary.METRICS, self._metric * _CALLS_OF_ONE_METRIC + call
            )
        self._calls = self._calls + 1 if where == self._last else 0
        self._last = where
        if len(where) == 1:
            return worker_end.IN_BATCH + self._calls
        epoch, kind = where
        return worker_end.boundary(epoch, worker_end.Boundary(kind), self._calls)

    @property
    def at_boundary(self) -> bool:
        """Whether this worker is between batches."""
        return len(self._where()) == 2

    def _where(self) -> tuple[int, ...]:
        """(batch,) inside a batch; (epoch, `Boundary`) between batches. The batch in which `on_train_batch_start`
        returned -1 is never completed, so it counts only while its epoch runs."""
        fit = self._trainer.fit_loop
        batch = fit.epoch_loop.batch_progress
        epoch: Any = fit.epoch_progress.current  # Lightning types it too widely
        if epoch.ready == epoch.completed:
            return (epoch.ready, worker_end.Boundary.OVER)
        if epoch.processed == epoch.ready:
            return (epoch.ready, worker_end.Boundary.END)
        is_running = epoch.started == epoch.ready
        if is_running and batch.current.ready != batch.current.completed:
            return (batch.total.ready,)
        return (epoch.ready, worker_end.Boundary.START)


def number_of_metric(name: str) -> int:
    """A number that orders the metrics of an epoch in every worker; two metrics rarely have the same."""
    return crc32(name.encode()) % (worker_end.POSITIONS // _CALLS_OF_ONE_METRIC)


def set_apart(trainer: Trainer, places: CollectiveOrder) -> None:
    """Run each hook of `OF_ONE_WORKER` inside `apart`, in this process."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # made by Lightning's callback connector
        if isinstance(callback, OF_ONE_WORKER):
            for name in _HOOKS:
                if not isinstance(hook := getattr(callback, name), _Apart):
                    vars(callback)[name] = _Apart(callback, name, hook, places)


_HOOKS: Final = [name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown")]


class _Apart:
    """In the place of a callback's hook; a copy of the callback has its own method."""

    def __init__(self, callback: Callback, name: str, hook: Callable[..., Any], places: CollectiveOrder) -> None:
        self._callback, self._name, self._hook, self._places = callback, name, hook, places
        update_wrapper(self, hook)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._places.apart():
            return self._hook(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _own_hook, (self._callback, self._name)


def _own_hook(callback: Callback, name: str) -> Any:
    return MethodType(getattr(type(callback), name), callback)
