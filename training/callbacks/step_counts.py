"""Counts updates, samples and times for strategies that do not count themselves: one process, DDP and ModelParallel."""

import math
from typing import Any, Literal

from lightning.pytorch import Trainer
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from scalebook.training.engine.coordination import measures
from scalebook.training.lightning import DDP, ModelParallel, RunFigures, batches_at_once

NANOSECOND = 1e-9


class LocalFigures(RunFigures):
    """Counts this worker alone: under DDP all workers do the same synchronously.

    Updates are the Trainer's; samples are this worker's times the workers that have a batch each. The time for
    exchanging gradients after they are ready is DDP's own measurement, on some steps, extrapolated to all; it includes
    waiting for slower workers. A step that waited long, such as the first, is extrapolated by at most its share of the
    step's time.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.batches = batches_at_once(trainer)
        self.samples = 0
        self.compute = 0.0
        self.data = 0.0
        self.memory_bytes = 0
        self._exposed_per_step = 0.0
        self._computed_per_step = 0.0
        self._sampled_steps = 0
        self._last_iteration = -1

    @override
    def counts(self) -> measures.Counts:
        return measures.Counts(self.trainer.global_step, self.samples * self.batches)

    @override
    def living(self) -> list[int]:
        """All workers: none can leave."""
        return list(range(len(self.worker_times())))

    @override
    def worker_times(self) -> list[measures.WorkerTimes]:
        wait, communicate = self._waits()
        times = measures.WorkerTimes(
            compute=self.compute - wait - communicate,
            wait=wait,
            communicate=communicate,
            data=self.data,
            updates=self.trainer.global_step,
            samples=self.samples,
            memory_bytes=self.memory_bytes,
        )
        return [times]

    def _waits(self) -> tuple[float, float]:
        """Seconds of `compute` in which the worker waits for others, and for what they send. NaN for a split model
        whose collectives are within its layers: nobody has measured them."""
        strategy = self.trainer.strategy
        if isinstance(strategy, ModelParallel) and self.trainer.world_size > 1:
            workers = [] if strategy.parts is None else strategy.parts.workers
            measured = [one for one in workers if one.bubble is not None and one.uneven is not None]
            if not measured:
                return math.nan, math.nan
            idle = sum((one.bubble or 0.0) + (one.uneven or 0.0) for one in measured) / len(measured)
            link = sum(one.link or 0.0 for one in measured) / len(measured)
            return idle * self.compute, link * self.compute
        exposed, computed = self._exposed_per_step, self._computed_per_step
        share = exposed / (exposed + computed) if exposed else 0.0
        return 0.0, min(exposed * self.trainer.global_step, share * self.compute)

    @override
    def moved_bytes(self) -> measures.MovedBytes:
        """Bytes of gradients that all workers have sent and received; each the same as this one.

        Of a split model what a measured step says of all. NaN if they are not counted: under other strategies, or with
        the user's own communication hook.
        """
        if (workers := self.trainer.world_size) == 1:
            return measures.MovedBytes(0.0, 0.0)
        strategy = self.trainer.strategy
        if isinstance(strategy, ModelParallel):
            sent = math.nan if strategy.parts is None else strategy.parts.sent * self.trainer.global_step
            return measures.MovedBytes(sent, sent)
        if not isinstance(strategy, DDP) or (exchange := strategy.exchange) is None:
            return measures.MovedBytes(math.nan, math.nan)
        return measures.MovedBytes(float(workers * exchange.pushed_bytes), float(workers * exchange.pulled_bytes))

    @override
    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        if part == "compute":
            self.compute += seconds
            self._ask_ddp()
        else:
            self.data += seconds

    @override
    def add_samples(self, samples: int) -> None:
        self.samples += samples

    @override
    def note_memory(self, size: int) -> None:
        self.memory_bytes = size

    def _ask_ddp(self) -> None:
        """Take DDP's latest measurement, if there is a new one, into the mean of all."""
        model = self.trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            return
        measured: dict[str, Any] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # torch does not annotate it
        iteration = measured.get("iteration", 0)
        if iteration == self._last_iteration or "backward_comm_time" not in measured:
            return
        self._last_iteration = iteration
        exposed = measured["backward_comm_time"] - measured.get("backward_compute_comm_overlap_time", 0)
        computed = measured.get("forward_compute_time", 0) + measured.get("backward_compute_time", 0)
        self._sampled_steps += 1
        self._computed_per_step += (computed * NANOSECOND - self._computed_per_step) / self._sampled_steps
        self._exposed_per_step += (max(0, exposed) * NANOSECOND - self._exposed_per_step) / self._sampled_steps
