"""What one worker's steps take on this machine: computing, and the parameter server's part, told apart."""

import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from scalebook.training.callbacks.divergence import DivergenceGuard
from scalebook.training.callbacks.measure import batch_size
from scalebook.training.callbacks.measured import Measured
from scalebook.training.callbacks.pictures import Pictures
from scalebook.training.files import records
from scalebook.training.ps.memory.layout import cut
from scalebook.training.tracking.logger import upload

FILE: Final = "plan-profile.json"
WARM_UP: Final = 20
"""Steps that count nothing, since the first take ten times as long; at most a third of all."""
SHARDS: Final = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class StepMeasures:
    """Of the steps that count. `cv`: standard deviation / mean. `shard_shares`: of the largest of so many shards."""

    steps: int
    batch_size: int
    gradient_s: float
    cv: float
    push_s: float
    push_bytes: float
    pull_bytes: float
    shard_shares: dict[str, float] = field(default_factory=dict)


class StepTimes(Callback):
    """Ends the run of a parameter server's only worker after `seconds`, or `most` steps, and writes `FILE`.

    A push is what the engine itself counts of it; a gradient is the rest of a step, fetching and logging included.
    Batches that are smaller than the first count nothing.
    """

    def __init__(self, seconds: float = 6.0, most: int = 1000) -> None:
        self.seconds, self.most = seconds, most
        self._began = self._at = 0.0
        self._pushed = self._first_bytes = (0.0, 0.0)
        self._steps: list[tuple[float, float]] = []  # seconds of gradient and push
        self._size: int | None = None
        self._bytes = (0.0, 0.0)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A few steps say nothing of a model: neither divergence nor pictures matter."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        kept = [callback for callback in callbacks if not isinstance(callback, DivergenceGuard | Pictures)]
        trainer.callbacks = kept  # type: ignore[attr-defined]  # as above

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = self._at = perf_counter()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize(trainer.strategy.root_device)
        strategy = trainer.strategy
        assert isinstance(strategy, Measured), "measured under AsyncPS"
        (times,) = strategy.worker_times()
        now, pushed = perf_counter(), times.communicate + times.wait
        push_s = pushed - self._pushed[0]
        size = batch_size(batch)
        self._size = self._size or size
        if size == self._size:
            self._steps.append((max(0.0, now - self._at - push_s), push_s))
            self._bytes = times.pushed_bytes - self._first_bytes[0], times.pulled_bytes - self._first_bytes[1]
        self._at, self._pushed = now, (pushed, 0.0)
        self._first_bytes = float(times.pushed_bytes), float(times.pulled_bytes)
        trainer.should_stop |= now - self._began > self.seconds or len(self._steps) >= self.most

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or not self._steps or self._size is None:
            return
        counted = self._steps[min(WARM_UP, len(self._steps) // 3) :]
        gradients, pushes = [gradient for gradient, _ in counted], [push for _, push in counted]
        mean = statistics.fmean(gradients)
        told = StepMeasures(
            steps=len(counted),
            batch_size=self._size,
            gradient_s=mean,
            cv=statistics.stdev(gradients) / mean if len(gradients) > 1 and mean else 0.0,
            push_s=statistics.fmean(pushes),
            push_bytes=self._bytes[0],
            pull_bytes=self._bytes[1],
            shard_shares=shard_shares([(name, p.detach()) for name, p in pl_module.named_parameters()]),
        )
        path = Path(trainer.default_root_dir) / FILE
        records.save(path, asdict(told))
        upload(trainer, path)


def shard_shares(parameters: list[tuple[str, Tensor]]) -> dict[str, float]:
    """The largest shard's share of all bytes, for as many shards as there are parameters for."""
    whole = sum(tensor.nbytes for _, tensor in parameters) or 1
    return {
        str(shards): max(sum(tensor.nbytes for _, tensor in part) for part in cut(parameters, shards)) / whole
        for shards in SHARDS
        if shards <= len(parameters)
    }
