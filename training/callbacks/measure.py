"""Records of every run: loss against updates, samples and seconds; throughput; shares of time; staleness."""

import hashlib
import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from scalebook.training.callbacks.batches import batch_size, loss_of
from scalebook.training.callbacks.computed_figures import (
    MB,
    STEPS,
    PeakMemory,
    Window,
    busiest,
    by_worker,
    gradients,
    moved,
    pushes,
    shares,
    staleness,
)
from scalebook.training.callbacks.metric_summary import MetricSummary, logged
from scalebook.training.callbacks.step_clocks import DataClock, DeviceSteps, StepSeconds
from scalebook.training.callbacks.step_counts import LocalFigures
from scalebook.training.engine import device_of
from scalebook.training.engine.coordination import measures
from scalebook.training.lightning import RunFigures, SkipsEmptyHooks, batches_at_once, figures_of
from scalebook.training.tracking import Axes, Goal, RunLogger, WorkerFile, directions, names, worker_figures

FIRST_EVENT_S: Final = 0.1
LONGEST_EVENT_S: Final = 10.0
EVENTS_PER_AGE: Final = 200
"""Points come every 0.1 s at first, then ever more rarely: 200 for each factor of 2.5 in the run's age."""

FIGURES_S: Final = 1.0
"""The shortest interval between points of throughput, shares, staleness and memory, s."""


class Measure(SkipsEmptyHooks, Callback):
    """Counts and times the steps of this worker; worker 0 also records, for all workers.

    A strategy with `figures` counts for all workers; for others this callback counts. It costs about 5 us per step, and
    0.3 ms per point. Python does not wait for a GPU: steps of one process and of DDP are timed on the device
    (`DeviceSteps`); a strategy with `figures` waits for it before a push.
    """

    def __init__(
        self, clock: DataClock, modes: Mapping[str, Goal] | None = None, workers: WorkerFile | None = None
    ) -> None:
        """`modes`: whether a lower or higher metric is better, if the config says it. `workers`: the file for metrics
        of single workers."""
        self.workers = workers
        self.clock = clock
        self.measured: RunFigures | None = None
        self.summary = MetricSummary(modes)
        self.latest: dict[str, float] = {}
        """The last recorded values, by metric."""
        self._begun: float | None = None  # when the first training batch began; earlier when resumed
        self._really_begun = perf_counter()  # the same on the clock on the wall, which says when to record
        self._batch_begun = 0.0
        self._busy = 0.0  # seconds inside batches, not yet told to `measured`
        self._on_device: DeviceSteps | None = None  # which times them where Python goes on meanwhile
        self._data_told = self._data_before = 0.0
        self._idle_of_others = 0.0  # wait and communicate of this worker that are inside `_busy`
        self._next_event = 0.0
        self._next_figures = 0.0
        self._pinned: Axes | None = None
        self._ended: measures.Counts | None = None  # at the end of the run, the same for all who ask
        self._validating_since: float | None = None
        self._validation_s = 0.0
        self._window = Window()
        self._memory = PeakMemory()
        self._told: set[str] = set()  # figures that have said something
        self._last_loss: Tensor | None = None
        self._directions_told = False
        self._restored: dict[str, Any] = {}
        self._marked = 0
        self._updates_before = 0  # of the run that this one resumes

    # --- what others ask -----------------------------------------------------------------------------------------

    def axes(self) -> Axes:
        """The axes of a point recorded now; during a validation, those of its start."""
        return self._pinned or self._axes_now()

    def counts(self) -> measures.Counts:
        """Updates and samples so far. After the end those that are recorded, even if other workers still push."""
        if self._ended is not None:
            return self._ended
        return measures.Counts(0, 0) if self.measured is None else self.measured.counts()

    def _now(self) -> float:
        """On the run's clock."""
        return perf_counter() if self.measured is None else self.measured.now()

    def seconds(self) -> float:
        """Seconds since the first training batch began, on the run's clock."""
        return 0.0 if self._begun is None else self._now() - self._begun

    def real_seconds(self) -> float:
        """Like `seconds`, on the wall clock: they differ in a simulated run."""
        return 0.0 if self._begun is None else perf_counter() - self._really_begun

    # --- the run -------------------------------------------------------------------------------------------------

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for logger in _ours(trainer):
            logger.axes = self.axes
            logger.logged = lambda: trainer._logger_connector._logged_metrics  # `logged_metrics` computes them anew
            logger.start()

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.measured, self._ended = figures_of(trainer) or LocalFigures(trainer), None
        if self._restored and isinstance(self.measured, LocalFigures):
            self.measured.add_samples(self._restored["samples"] // batches_at_once(trainer))
        device = device_of([one for one in pl_module.parameters() if not one.is_meta])  # which other stages have
        if isinstance(self.measured, LocalFigures) and not device.is_host:
            self._on_device = DeviceSteps(device)
        self._window = Window(STEPS if self.measured.is_simulated else 0)
        self._idle_of_others = self._waited(trainer)
        self._updates_before = self.counts().updates if self._restored else 0

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        now = self._now()
        if self._begun is None:
            for logger in _ours(trainer) if trainer.is_global_zero else ():
                logger.experiment.set_tag(logger.run_id, names.TAG_RANDOM_TRAINED, random_state())
            now = self._now()
            self._begun = self._clock_restored(now) - self._restored.get("seconds", 0.0)
            real = perf_counter()
            self._really_begun = real - self._restored.get("real_seconds", self._restored.get("seconds", 0.0))
            self._next_event = self._next_figures = real
            self._window.open_window(now, self.counts(), self._rates_per_worker())
        self._batch_begun = now
        if self._on_device is not None:
            self._on_device.begin_step(self.clock.seconds - self._data_before)
            self._data_before = self.clock.seconds

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self.measured is not None
        now = self._now()
        self._busy += now - self._batch_begun
        if self._on_device is not None:
            self._on_device.end_step()
        self.measured.add_samples(batch_size(batch))
        self._last_loss = loss_of(outputs)
        if perf_counter() >= self._next_event:
            self._event(trainer, now)

    def _event(self, trainer: Trainer, now: float) -> None:
        self._settle(trainer)
        real, age = perf_counter(), self.real_seconds()
        self._next_event = real + min(LONGEST_EVENT_S, max(FIRST_EVENT_S, age / EVENTS_PER_AGE))
        if not trainer.is_global_zero:
            return
        points = self._own_metrics(trainer) | self._training_loss(trainer)
        if real >= self._next_figures and self.counts().updates > 0:
            self._next_figures = real + max(FIGURES_S, age / EVENTS_PER_AGE)
            points |= self._figures(trainer, now)
        self._record(trainer, points)

    # --- validation ----------------------------------------------------------------------------------------------

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validating_since = self._now()

    @override
    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fix the axes of the validation's points, when the parameters to validate are in place."""
        self._pinned = self._axes_now()
        apart = None if self.measured is None or trainer.sanity_checking else self.measured.consensus()
        if trainer.is_global_zero and apart is not None:
            weight = {} if apart.weight == 1 else {names.PEER_WEIGHT: apart.weight}
            self._record(
                trainer, {names.PEERS_APART: apart.distance, names.PEERS_APART_RELATIVE: apart.relative, **weight}
            )

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._validating_since is not None:
            self._validation_s += self._now() - self._validating_since
        self._validating_since = self._pinned = None
        if not trainer.sanity_checking:
            better = self.summary.validated(trainer.callback_metrics, logged(trainer))
            self.latest.update(self.summary.last)
            if trainer.is_global_zero:
                self._record(trainer, better)
                self._tell_directions(trainer)
                self._mark_own(trainer)

    def _tell_directions(self, trainer: Trainer) -> None:
        """Once, with the first validation, which has them all; a config's may also be of a metric that nobody logs."""
        if self.summary.directions and not self._directions_told:
            self._directions_told = True
            for logger in _ours(trainer):
                logger.experiment.set_tag(
                    logger.run_id, names.TAG_DIRECTIONS, directions.as_tag(self.summary.directions)
                )

    # --- the end -------------------------------------------------------------------------------------------------

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._settle(trainer, last=True)

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finish(trainer)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.measured is not None:
            self._settle(trainer)
            self._finish(trainer)

    def _mark_own(self, trainer: Trainer) -> None:
        """Name the metrics that are a worker's own in the run's tags, as soon as there is another."""
        own_metrics: set[str] = getattr(trainer.strategy, "own_metrics", set())  # of DDP
        if not trainer.is_global_zero or len(own_metrics) == self._marked:
            return
        self._marked = len(own_metrics)
        for logger in _ours(trainer):
            logger.experiment.set_tag(logger.run_id, names.TAG_OWN, ", ".join(sorted(own_metrics)))

    def _finish(self, trainer: Trainer) -> None:
        """Totals of the whole run, and best and final values."""
        if not trainer.is_global_zero or self.measured is None or self._begun is None:
            return
        now = self._now()
        self._ended = counts = self.counts()
        trained_s = self._training_seconds(now) - self._begun
        points = self._training_loss(trainer)
        last = self._own_metrics(trainer, everything=True) | points
        last_values = {names.final(metric): value for metric, value in last.items()}
        self.latest.update(last_values | self.summary.finals())  # a search may be over the loss of training
        points |= self.summary.points() or last_values
        if counts.updates > 0:
            total = Window()
            total.open_window(0.0, measures.Counts(0, 0), {})
            points |= total.rates(trained_s, counts, self._rates_per_worker())
            points |= self._state(trainer)
            points |= by_worker(self.measured.worker_times(), self.measured.staleness(), self.measured.pushes())
        self._record(trainer, points, last=True)
        self._mark_own(trainer)

    @override
    def state_dict(self) -> dict[str, Any]:
        state = {"samples": self.counts().samples, "seconds": self.seconds(), "real_seconds": self.real_seconds()}
        if self.measured is not None and self.measured.is_simulated:
            state["at"] = self._now()
        moved_bytes = self._bytes()
        return state if math.isnan(moved_bytes) else {**state, "bytes": moved_bytes}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = dict(state_dict)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _clock_restored(self, now: float) -> float:
        """What the run's clock said when the checkpoint was written, if that clock goes on, as a virtual one does;
        now otherwise. Worker 0's next batch may begin later than that."""
        goes_on = self.measured is not None and self.measured.is_simulated
        return min(now, self._restored.get("at", now)) if goes_on else now

    def _axes_now(self) -> Axes:
        counts = self.counts()
        return Axes(counts.updates, counts.samples, round(self.seconds(), 6), self._bytes())

    def _bytes(self) -> float:
        """Of all workers so far, those before a checkpoint included; NaN where they are not counted."""
        moved_bytes = math.nan if self.measured is None else sum(self.measured.moved_bytes())
        before: float = self._restored.get("bytes", 0.0)
        return moved_bytes + before

    def _settle(self, trainer: Trainer, last: bool = False) -> None:
        """Tell `measured` this worker's time since the last call; what the strategy spent itself is not compute."""
        assert self.measured is not None
        waited = self._waited(trainer)
        if self._on_device is not None:
            spent = self._on_device.pop_seconds(wait=last)
        else:
            computing = max(0.0, self._busy - (waited - self._idle_of_others))
            spent = StepSeconds(computing, self.clock.seconds - self._data_told)
        self.measured.add_time("compute", spent.computing)
        self.measured.add_time("data", spent.fetching)
        self.measured.note_memory(self._memory.peak(trainer.strategy.root_device, at_once=last))
        self._busy, self._data_told, self._idle_of_others = 0.0, self.clock.seconds, waited

    def _waited(self, trainer: Trainer) -> float:
        """Seconds that the strategy itself has measured inside this worker's batches."""
        if self.measured is None or isinstance(self.measured, LocalFigures):
            return 0.0
        times = self.measured.worker_times()
        own_times = times[trainer.global_rank] if trainer.global_rank < len(times) else None
        return 0.0 if own_times is None else own_times.wait + own_times.communicate

    def _training_seconds(self, now: float) -> float:
        """The clock against which throughput counts: it stands while all workers wait for a validation."""
        return now - self._validation_s if isinstance(self.measured, LocalFigures) else now

    def _own_metrics(self, trainer: Trainer, everything: bool = False) -> dict[str, float]:
        """What the model itself has logged of the last batch, under names that begin with `train/`; with `everything`
        under any."""
        metrics = trainer.callback_metrics
        return {
            name: float(value)
            for name, value in metrics.items()
            if (everything or name.startswith(names.TRAINING)) and value.numel() == 1
        }

    def _training_loss(self, trainer: Trainer) -> dict[str, float]:
        """The loss of the last batch; reading it waits for the GPU."""
        if self._last_loss is None:
            return {}
        return {names.TRAIN_LOSS: float(self._last_loss) * trainer.accumulate_grad_batches}

    def _rates_per_worker(self) -> dict[int, measures.Counts]:
        assert self.measured is not None
        return {
            i: measures.Counts(times.updates, times.samples) for i, times in enumerate(self.measured.worker_times())
        }

    def _figures(self, trainer: Trainer, now: float) -> dict[str, float]:
        rates = self._window.rates(self._training_seconds(now), self.counts(), self._rates_per_worker())
        return rates | self._state(trainer)

    def _state(self, trainer: Trainer) -> dict[str, float]:
        assert self.measured is not None
        updates = self.counts().updates - self._updates_before
        times, apart = self.measured.worker_times(), self.measured.buffers_apart()
        return {
            **shares(times),
            **gradients(times, updates),
            **staleness(self.measured.staleness()),
            **pushes(self.measured.pushes()),
            **({} if apart is None else {names.BUFFERS_APART: apart}),
            **({names.REAL_SECONDS: self.real_seconds()} if self.measured.is_simulated else {}),
            names.PEAK_MEMORY_MB: self._memory.peak(trainer.strategy.root_device) / MB,
            **moved(self.measured.moved_bytes(), updates),
            **({} if self.measured.consensus() is None else busiest(times, updates)),
        }

    def _record(self, trainer: Trainer, points: dict[str, float], last: bool = False) -> None:
        points = {metric: value for metric, value in points.items() if not math.isnan(value)}
        of_workers = {
            metric: points.pop(metric) for metric in list(points) if worker_figures.of_worker(metric) is not None
        }
        self.latest.update(points)
        axes = self.axes()
        if self.workers is not None and of_workers:
            self.workers.add(axes.points(), of_workers, last)
        points = {
            metric: value
            for metric, value in points.items()
            if metric not in names.UNRECORDED and self._tells(metric, value)
        }
        if points:
            for logger in trainer.loggers:
                logger.log_metrics(points, step=axes.updates)

    def _tells(self, metric: str, value: float) -> bool:
        """Whether a figure of ours has ever said something but what it says in most runs."""
        is_measured = metric.startswith(names.MEASURED) and metric not in names.TOLD
        if not is_measured or value != 0:
            self._told.add(metric)
        return metric in self._told


def random_state() -> str:
    """A digest of torch's present random state."""
    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()[:12]


def _ours(trainer: Trainer) -> list[RunLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, RunLogger)]
