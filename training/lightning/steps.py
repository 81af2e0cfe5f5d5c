"""Steps in a worker's Trainer: a step is an update of the shared parameters by any worker.

`trainer.global_step` is the number of updates in this worker's replica, as `max_steps` and the schedules count them, so
between two batches of one worker it grows by the updates of all workers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from scalebook.training.lightning.package import Trainer, _ReadyCompletedTracker


class Step(int):
    """A number of updates that knows which of them are new: those in (since, until], which came with the last batch.

    Callbacks and models test `global_step % n == 0` after each batch, which a number that grows by several would mostly
    miss. So `%` is 0 exactly when a multiple of n is among the new updates: a test once per batch is true once for each
    multiple. Sums and differences with plain integers keep this, for "the next step" and "the last one"; otherwise it
    is an int. Copies and pickles are ints.
    """

    since: int
    until: int

    def __new__(cls, value: int, since: int, until: int) -> "Step":
        step = super().__new__(cls, value)
        step.since, step.until = since, until
        return step

    @override
    def __mod__(self, n: Any) -> Any:
        if not isinstance(n, int) or n <= 0:
            return int(self) % n
        return 0 if self.until // n > self.since // n else self.until % n or n

    @override
    def __add__(self, other: int) -> int:
        if type(other) is not int:
            return int(self) + other
        return Step(int(self) + other, self.since + other, self.until + other)

    __radd__ = __add__

    @override
    def __sub__(self, other: int) -> int:
        return self + -other if type(other) is int else int(self) - other

    def at(self, value: int) -> "Step":
        """Another number with the same new updates."""
        return Step(value, self.since, self.until)

    def __deepcopy__(self, memo: dict[int, Any]) -> int:
        return int(self)

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        return int, (int(self),)


class Interval(int):
    """The value of `trainer.val_check_batch`: the interval for an equal share of the batches, except that `batch %
    interval` divides by `divides`.

    Copies and pickles are ints.
    """

    divides: int

    def __new__(cls, value: int, divides: int) -> "Interval":
        interval = super().__new__(cls, value)
        interval.divides = divides
        return interval

    def __rmod__(self, batches: int) -> int:
        return batches % self.divides

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class _Completed(_ReadyCompletedTracker):
    """Replaces Lightning's count of optimizer steps, from which `global_step` is computed."""

    def __init__(self, steps: "Steps") -> None:
        self._steps, self._begun = steps, 0  # steps that are ready and not completed
        super().__init__()

    @property
    def completed(self) -> int:  # a field there
        return self._steps.now

    @completed.setter
    def completed(self, _value: int) -> None:
        """Ignore the value: Lightning adds one for each push of this worker, after the hook `optimizer_step`."""
        self._begun = 0
        self._steps.step_completed()

    @property
    def ready(self) -> int:  # as above
        return self._steps.now + self._begun

    @ready.setter
    def ready(self, value: int) -> None:
        self._begun = value - self._steps.now


class Steps:
    """Counts the steps of one worker's Trainer, from the start of its training.

    `global_step` counts the updates of all optimizers together, as Lightning does. Loggers and `log_every_n_steps` use
    Lightning's `_batches_that_stepped`: with several optimizers, the updates of the one with the most, since a batch
    steps each of them. As in one process, hooks see a step as soon as the hook that has made it is over.

    `alone`: there is one worker, so that everything is as Lightning counts it.
    """

    def __init__(self, trainer: Trainer, alone: bool) -> None:
        self._trainer, self._alone, self.now = trainer, alone, 0
        self._next = 0  # what `now` becomes when Lightning has completed the step
        self._until = self._since = 0, 0  # after the last push, before the present batch
        self._most, self._is_counting = 0, False
        self._loop, self._tells_loggers = trainer.fit_loop.epoch_loop, False

    def start(self, versions: Sequence[int], before: Sequence[int]) -> None:
        """Replace Lightning's counts. `versions`: each optimizer's, now; `before`: in the checkpoint that the run
        resumes from. Updates in between, of other workers, count as new."""
        self.now = self._next = sum(versions)
        self._most, self._is_counting = max(versions), True
        self._until = self._since = sum(before), max(before)
        automatic = self._trainer.lightning_module.automatic_optimization
        progress = (
            self._loop.automatic_optimization.optim_progress.optimizer.step
            if automatic
            else self._loop.manual_optimization.optim_step_progress
        )
        progress.total = _Completed(self)
        self._tells_loggers = automatic or not self._alone

    def batch_begins(self) -> None:
        """Start a batch: updates from now on are new after it."""
        self._since = self._until

    def pushed(self, versions: Sequence[int], least: int) -> None:
        """Note the replica's versions after a push. `least`: updates that have certainly been made."""
        updates, most = max(sum(versions), least, int(self._next)), max(versions)
        self._until, self._most = (updates, most), most
        self._next = updates if self._alone else Step(updates, self._since[0], updates)
        if self._tells_loggers:  # less 1, which Lightning adds after the batch
            self._loop._batches_that_stepped = (most if self._alone else Step(most, self._since[1], most)) - 1

    def step_completed(self) -> None:
        """Show the updates of the last push."""
        self.now = self._next

    @contextmanager
    def shown(self, updates: int) -> Iterator[None]:
        """Meanwhile the count is `updates`."""
        before, self.now = self.now, updates
        try:
            yield
        finally:
            self.now = before

    def moved(self, versions: Sequence[int]) -> None:
        """Note the versions after a pull without a push: names and checkpoints use them now. They count as new only
        after the next push."""
        if not self._is_counting:
            return
        updates, logged_step = max(sum(versions), int(self.now)), self._loop._batches_that_stepped
        self.now = self._next = self.now.at(updates) if isinstance(self.now, Step) else updates
        if self._tells_loggers and isinstance(logged_step, Step):
            self._loop._batches_that_stepped = logged_step.at(int(logged_step) + max(versions) - self._most)
        self._most = max(versions)


def plain(value: Any) -> Any:
    """`value` with every `Step` in its dicts, lists and tuples as a plain int, for `torch.load(weights_only=True)`."""
    if isinstance(value, Step):
        return int(value)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return value
