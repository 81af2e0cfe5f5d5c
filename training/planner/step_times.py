"""Measures a worker's steps on this machine, alone and beside others: computing, and the parameter server's part."""

import os
import socket
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import psutil
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch._C._distributed_c10d import FileStore
from typing_extensions import override

from scalebook.training.base.files import records
from scalebook.training.callbacks import DivergenceGuard, Pictures, batch_size
from scalebook.training.engine import is_table, loopback_round_trips, split_into_shards
from scalebook.training.lightning import RunFigures, SkipsEmptyHooks, figures_of
from scalebook.training.pricing import STEPS, Layer, LayerTimes
from scalebook.training.tracking import upload

FILE: Final = "plan-profile.json"
WARM_UP: Final = 20
"""Steps that do not count, since the first take ten times as long; at most a third of all."""
POLL_S: Final = 0.005
READY_AT: Final = 3
"""The step whose backward pass shows when gradients are ready."""
REDUCED: Final = (4_096, 4_194_304)
"""Bytes of the all-reduces that are measured."""
REDUCES: Final = 40
"""All-reduces of each size; the first one does not count."""
COMPUTED_S: Final = 0.002
"""Seconds of computing before each of them. A process that has computed waits longer for its all-reduce's threads."""
ROUND_TRIPS: Final = 12
"""Frames of each size; the first one does not count."""
MEETING_S: Final = 20.0
SHARDS: Final = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class StepMeasures:
    """Measures of the steps that count. `gradient_s`: from one push to the next, without waiting and applying; `cv`:
    standard deviation / mean of a step; `server_s`: applying one gradient. `slowdown`: factor by which a step takes
    longer while `at_once` workers compute. `shard_shares`: the largest shard's share, by the number of shards.
    `sparse`: whether the model has sparse tables."""

    steps: int
    batch_size: int
    gradient_s: float
    cv: float
    server_s: float
    push_bytes: float
    pull_bytes: float
    shard_shares: dict[str, float] = field(default_factory=dict)
    at_once: int = 1
    slowdown: float = 1.0
    sparse: bool = False
    ready: list[list[float]] = field(default_factory=list)
    """Of one backward pass: seconds before its end at which gradients were ready, and their bytes, in this order."""
    weights: float = 0.0
    """Bytes of the model's parameters."""
    state: float = 0.0
    """Bytes of the optimizers' state."""
    reduce_s: list[list[float]] = field(default_factory=list)
    """All-reduces by all `at_once` workers over this machine's loopback: bytes, seconds."""
    message_s: list[list[float]] = field(default_factory=list)
    """Frames of the engine's channel, one way over this machine's loopback: bytes, seconds."""
    layers: list[Layer] = field(default_factory=list)
    """By one batch; empty for a model with sparse tables."""
    microbatches: dict[str, float] = field(default_factory=dict)
    """By how much longer a batch takes in so many microbatches."""
    memory: float = 0.0
    """Bytes of memory of the worker's GPU, or its share of this machine's."""


@dataclass
class _Phase:
    """Steps of worker 0: seconds without waiting. `served_s`, `served`: of all applying since it began, in which
    `done` steps were made, those without a push included."""

    began: float
    steps: list[float] = field(default_factory=list)
    served_s: float = 0.0
    served: int = 0
    done: int = 0

    @property
    def counted(self) -> list[float]:
        return self.steps[min(WARM_UP, len(self.steps) // 3) :]


class StepTimes(SkipsEmptyHooks, Callback):
    """Measures worker 0 of a parameter server, alone and then beside the others, and writes `FILE`.

    Each of the two takes half of `seconds`, or `most` steps; the others wait with their first batch until worker 0 has
    been measured alone. A single worker has all the time. Batches that are smaller than the first count nothing.
    """

    def __init__(self, seconds: float = 6.0, most: int = 1000) -> None:
        self.seconds, self.most = seconds, most
        self._phases: list[_Phase] = []
        self._at = self._waited = 0.0
        self._bytes = self._first_bytes = (0.0, 0.0)
        self._size: int | None = None
        self._ready: list[tuple[float, float]] = []
        self._hooks: list[Any] = []
        self._layers: LayerTimes | None = None
        self._microbatches: dict[str, float] = {}

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove callbacks that judge or draw the model: a few steps say nothing about it."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        remaining = [callback for callback in callbacks if not isinstance(callback, DivergenceGuard | Pictures)]
        trainer.callbacks = remaining  # type: ignore[attr-defined]  # as above

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave out the model's schedules: one may wait for a validation metric, and nothing is validated here."""
        trainer.strategy.lr_scheduler_configs = []

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._phases:
            self._measure_layers(trainer, pl_module)
            return
        until = perf_counter() + self.seconds
        while not trainer.is_global_zero and not _alone(trainer).exists() and perf_counter() < until:
            sleep(POLL_S)
        self._at = perf_counter()
        self._phases.append(_Phase(self._at))

    def _measure_layers(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """In some steps of worker 0, alone; not of a model with sparse tables."""
        if not trainer.is_global_zero or len(self._phases) > 1 or self._phases[0].done not in STEPS:
            return
        if self._layers is None and not any(map(is_table, pl_module.parameters())):
            self._layers = LayerTimes(pl_module)
        if self._layers is not None:
            self._layers.begin_step()

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """In one backward pass of worker 0, alone, note when each gradient is ready."""
        if self._ready or not trainer.is_global_zero or len(self._phases) != 1 or self._phases[0].done != READY_AT:
            return

        def there(parameter: Tensor) -> None:
            if parameter.is_cuda:
                torch.cuda.synchronize(parameter.device)
            if parameter.grad is not None and not parameter.grad.is_sparse:
                self._ready.append((perf_counter(), float(parameter.grad.nbytes)))

        self._hooks = [
            parameter.register_post_accumulate_grad_hook(there)  # type: ignore[no-untyped-call]  # torch's
            for parameter in pl_module.parameters()
            if parameter.requires_grad and parameter.is_leaf
        ]

    @override
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._layers is not None:
            self._layers.end_step()
            if self._phases[0].done == STEPS[-1] and not self._microbatches:
                self._microbatches = _microbatches(self._layers, trainer)
        if self._hooks:
            now = perf_counter()
            self._ready = [(now - ready_at, nbytes) for ready_at, nbytes in self._ready]
            for hook in self._hooks:
                hook.remove()
            self._hooks = []

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize(trainer.strategy.root_device)
        figures = figures_of(trainer)
        assert figures is not None, "measured under AsyncPS"
        times, phase = figures.worker_times()[trainer.global_rank], self._phases[-1]
        now, size = perf_counter(), batch_size(batch)
        self._size = self._size or size
        phase.done += 1
        if size == self._size:
            phase.steps.append(max(0.0, now - self._at - (times.wait - self._waited)))
            if phase is self._phases[0]:  # the last one beside others may find the budget of updates used up
                pushed, pulled = times.pushed_bytes - self._first_bytes[0], times.pulled_bytes - self._first_bytes[1]
                self._bytes = pushed or self._bytes[0], pulled or self._bytes[1]  # not each step has a push and a pull
        self._at, self._waited = now, times.wait
        self._first_bytes = float(times.pushed_bytes), float(times.pulled_bytes)
        several = trainer.world_size > 1
        if now - phase.began <= self.seconds / (1 + several) and len(phase.steps) < self.most:
            return
        if trainer.is_global_zero and len(self._phases) == 1:
            self._has_been_alone(trainer, figures, phase)
            if several:
                return
        trainer.should_stop = True

    def _has_been_alone(self, trainer: Trainer, figures: RunFigures, phase: _Phase) -> None:
        served = figures.timings().server
        if served is not None:
            phase.served_s, phase.served = served.count * served.mean, served.count
        if trainer.world_size > 1:
            _alone(trainer).touch()
            self._phases.append(_Phase(self._at))

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        reduce_s = all_reduces(Path(trainer.default_root_dir), trainer) if trainer.world_size > 1 else []
        if not trainer.is_global_zero or not self._phases or self._size is None:
            return
        alone, beside = self._phases[0].counted, self._phases[-1].counted
        if not alone:
            return
        phase, mean = self._phases[0], statistics.fmean(alone)
        server_s = phase.served_s / phase.served if phase.served else 0.0
        gradient_s = max(0.0, mean - phase.served_s / max(1, phase.done))
        weights = float(sum(parameter.nbytes for parameter in pl_module.parameters()))
        measures = StepMeasures(
            steps=len(alone),
            batch_size=self._size,
            gradient_s=gradient_s,
            cv=statistics.stdev(alone) / mean if len(alone) > 1 and mean else 0.0,
            server_s=server_s,
            push_bytes=self._bytes[0],
            pull_bytes=self._bytes[1],
            shard_shares=shard_shares([(name, p.detach()) for name, p in pl_module.named_parameters()]),
            at_once=trainer.world_size if beside else 1,
            slowdown=statistics.fmean(beside) / mean if beside and mean else 1.0,
            sparse=any(map(is_table, pl_module.parameters())),
            weights=weights,
            state=state_bytes(trainer),
            ready=[list(pair) for pair in self._ready],
            reduce_s=reduce_s,
            message_s=frames(REDUCED),
            layers=[] if self._layers is None else self._layers.layers(gradient_s, weights),
            microbatches=self._microbatches,
            memory=memory_bytes(trainer.strategy.root_device, trainer.world_size),
        )
        path = Path(trainer.default_root_dir) / FILE
        records.save(path, asdict(measures))
        upload(trainer, path)


def all_reduces(folder: Path, trainer: Trainer) -> list[list[float]]:
    """Mean seconds of all-reduces of few and of many bytes by all workers, each after computing, as DDP's on a CPU.
    Empty on GPUs, whose links gloo does not use, and if a worker does not come in time."""
    if trainer.strategy.root_device.type != "cpu" or dist.is_initialized():
        return []
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        store = FileStore(str(folder / "plan-reduces"), trainer.world_size)
        dist.init_process_group(
            "gloo", store=store, rank=trainer.global_rank, world_size=trainer.world_size,
            timeout=timedelta(seconds=MEETING_S),
        )  # fmt: skip
        try:
            return [[float(nbytes), _reduce_s(nbytes)] for nbytes in REDUCED]
        finally:
            dist.destroy_process_group()
    except RuntimeError as error:
        rank_zero_warn(f"the time of an all-reduce was not measured: {error}")
        return []


def _reduce_s(nbytes: int) -> float:
    tensor, matrix, seconds = torch.zeros(nbytes // 4), torch.rand(128, 128), list[float]()
    product = torch.empty_like(matrix)
    for _ in range(REDUCES):
        until = perf_counter() + COMPUTED_S
        while perf_counter() < until:
            torch.mm(matrix, matrix, out=product)
        began = perf_counter()
        dist.all_reduce(tensor)
        seconds.append(perf_counter() - began)
    return statistics.fmean(seconds[1:])  # some take ten times the median, and training waits for them too


def frames(sizes: Sequence[int]) -> list[list[float]]:
    """Bytes and seconds of frames from one thread to another over the loopback: half of a round trip, the median of
    some. Empty if the machine lets nobody connect there."""
    try:
        seconds = [statistics.median(each[1:]) / 2 for each in loopback_round_trips(sizes, ROUND_TRIPS, MEETING_S)]
    except OSError as error:
        rank_zero_warn(f"a message was not measured: {error}")
        return []
    return [[float(nbytes), each] for nbytes, each in zip(sizes, seconds, strict=True)]


def _microbatches(layers: LayerTimes, trainer: Trainer) -> dict[str, float]:
    """Of the model's layers; empty, with a warning, if one cannot be computed by itself."""
    try:
        with trainer.precision_plugin.train_step_context():
            return layers.microbatch_factors()
    except (RuntimeError, TypeError, ValueError) as error:
        rank_zero_warn(f"microbatches were not measured: {error}")
        return {}


def memory_bytes(device: torch.device, workers: int) -> float:
    """Of a GPU, or of one of so many workers of this machine."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(psutil.virtual_memory().total) / workers


def state_bytes(trainer: Trainer) -> float:
    """Bytes of the state of worker 0's optimizers, which have that of all shards."""
    states = [trainer.strategy.optimizer_state(optimizer)["state"] for optimizer in trainer.optimizers]
    return float(sum(
        value.nbytes for each in states for values in each.values() for value in values.values()
        if isinstance(value, Tensor)
    ))  # fmt: skip


def _alone(trainer: Trainer) -> Path:
    """There once worker 0 has been measured alone."""
    return Path(trainer.default_root_dir) / "plan-alone"


def shard_shares(parameters: list[tuple[str, Tensor]]) -> dict[str, float]:
    """The largest shard's share of all bytes, by the number of shards, which is at most that of the parameters."""
    whole = sum(tensor.nbytes for _, tensor in parameters) or 1
    return {
        str(shards): max(sum(tensor.nbytes for _, tensor in part) for part in split_into_shards(parameters, shards))
        / whole
        for shards in SHARDS
        if shards <= len(parameters)
    }
