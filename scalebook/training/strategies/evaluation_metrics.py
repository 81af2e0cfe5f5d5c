"""What a model logs for an epoch, over the workers of DDP: the figures of one process.

At the end of an epoch all workers come here once, whatever each of them has logged, and exchange sums and weights. So
nothing is asked of a worker that has not logged a value, and every worker has all of them: those who monitor one
(EarlyStopping, ModelCheckpoint, schedulers) decide alike.
"""

import json
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric

from scalebook.training.strategies.evaluation_share import share_in
from scalebook.training.strategies.lightning import (
    Trainer,
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
    rank_zero_info,
)
from scalebook.training.strategies.undone import undone, undone_but_for_empty_parts

OWN: Final = "log: {} is not of all workers, since rank_zero_only or sync_dist_group asks for less."
MEAN: Final = (
    "log: {} is computed by each worker of its own data when the epoch ends; the mean over workers, weighted "
    "by samples, is one process's for means alone. Log it in the step, or use a torchmetric."
)


class Logged(NamedTuple):
    """One worker's part of a value: the sum and its weight (a mean), or what its reduction has made of it."""

    value: float
    weight: float
    meta: list[Any]
    """What `log` was told, for a worker that has not logged it."""

    @property
    def reduction(self) -> str:
        return str(self.meta[-1])


class _Reducing(Protocol):
    @property
    def root_device(self) -> torch.device: ...

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any: ...


class WorkersMetrics:
    """Of one Trainer in one worker; from `install` on. `own` gets the names of those that are not of all workers."""

    def __init__(self, trainer: Trainer, strategy: _Reducing, own: set[str]) -> None:
        self._trainer, self._strategy, self._own = trainer, strategy, own
        self._said: set[str] = set()

    def install(self) -> None:
        """Stand before Lightning where it sums up an epoch, and around the steps of its evaluations."""
        connector: Any = self._trainer._logger_connector
        trainer = self._trainer
        if "epoch_end_reached" in vars(connector):  # one Trainer, several fits in a process
            return
        of_steps, of_hooks = connector.epoch_end_reached, connector.on_epoch_end
        connector.epoch_end_reached = partial(self._first, self._sum_up_training, of_steps)
        connector.on_epoch_end = partial(self._first, self._sum_up_hooks, of_hooks)
        loops: tuple[Any, ...] = (trainer.fit_loop.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop)
        for loop in loops:
            of_loader = loop._store_dataloader_outputs
            loop._store_dataloader_outputs = partial(self._first, self._sum_up_steps, of_loader)
            loop._evaluation_step = partial(self._step, loop, loop._evaluation_step)

    def _first(self, what: Callable[[], None], then: Callable[[], None]) -> None:
        what()
        then()

    def _step(
        self, loop: Any, step: Callable[..., None], batch: Any, batch_idx: int, dataloader_idx: int, *more: Any
    ) -> None:
        """A batch that another worker counts leaves no trace, neither in the model nor in what is logged.

        A worker without a batch of its own keeps what is no torchmetric, so that its model has something to end an
        epoch with; what it logs then has no weight.
        """
        share = share_in(loop._combined_loader.flattened[dataloader_idx]) if loop._is_sequential else None
        with ExitStack() as stack:
            if share is not None and not share.counts(batch_idx):
                stack.callback(_forget, loop._results, _sums(loop._results))
                modules = list(self._trainer.lightning_module.modules())
                has_own = any(share.counts(index) for index in range(share.rounds))
                metrics = [each for each in modules if isinstance(each, Metric)]
                stack.enter_context(undone(modules) if has_own else undone_but_for_empty_parts(metrics))
            step(batch, batch_idx, dataloader_idx, *more)

    def _sum_up_training(self) -> None:
        results = self._trainer._results
        if results is not None and results.training:
            self._sum_up_steps()

    def _sum_up_steps(self) -> None:
        results = self._trainer._results
        if results is not None:
            self._sum_up(results, lambda metric: not _is_of_the_epoch(metric))

    def _sum_up_hooks(self) -> None:
        """In training they are the model's: `sync_dist` says whether they are reduced."""
        results = self._trainer._results
        if results is not None and not results.training:
            self._sum_up(results, _is_of_the_epoch)

    def _sum_up(self, results: _ResultCollection, chosen: Callable[[_ResultMetric], bool]) -> None:
        mine = {}
        for key, metric in results.valid_items():
            if not metric.is_tensor or not metric.meta.on_epoch or metric._computed is not None:
                continue
            if metric.meta.sync.rank_zero_only or metric.meta.sync.group is not None:
                self._say(OWN, metric.meta.name)
                if metric.meta.sync.rank_zero_only:
                    metric.compute()
            elif chosen(metric):
                mine[key] = _logged(metric)
        samples, everyone = [], []
        for count, letter in exchange([self._samples(), mine], self._strategy.root_device):
            samples.append(count)
            everyone.append({key: Logged(*each) for key, each in letter.items()})
        for key in sorted({key for letter in everyone for key in letter}):
            parts = [(letter[key], count) for letter, count in zip(everyone, samples, strict=True) if key in letter]
            metric = results[key] if key in results else self._missing(results, key, parts[0][0])
            value = self._of_all(metric, parts)
            metric.has_reset = False
            metric._computed = torch.tensor(value, dtype=metric.value.dtype, device=metric.value.device)

    def _of_all(self, metric: _ResultMetric, parts: list[tuple[Logged, int]]) -> float:
        if not _is_of_the_epoch(metric):
            return reduced([part for part, _ in parts])
        if any(count for _, count in parts):
            parts = [(part, count) for part, count in parts if count]
        if parts[0][0].reduction != "mean":
            return reduced([part for part, _ in parts])
        values = [part.value / part.weight for part, _ in parts]
        if len(set(map(repr, values))) == 1:
            return values[0]  # made of all workers' already
        self._say(MEAN, metric.meta.name)
        weights = [count or 1 for _, count in parts]
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)

    def _samples(self) -> int:
        """That this worker counts in this evaluation."""
        loader = None if self._trainer.training else self._trainer._evaluation_loop._combined_loader
        shares = [share_in(each) for each in ([] if loader is None else loader.flattened)]
        return sum(share.samples for share in shares if share is not None)

    def _missing(self, results: _ResultCollection, key: str, part: Logged) -> _ResultMetric:
        """A value that this worker has not logged, as others have."""
        *told, index, attribute, should, reduction = part.meta
        fx, name, prog_bar, logger, on_step, add_index = told
        meta = _Metadata(
            fx, name, prog_bar, logger, on_step, True, getattr(torch, reduction), False, add_index, index, attribute
        )
        meta.sync = _Sync(fn=self._strategy.reduce, _should=should)
        made: _ResultMetric = _ResultMetric(meta, is_tensor=True).to(self._strategy.root_device)
        results[key] = made
        return made

    def _say(self, text: str, name: str) -> None:
        if name not in self._said and not self._trainer.sanity_checking:
            self._said.add(name)
            self._own.add(name)
            rank_zero_info(text.format(repr(name)))


def _is_of_the_epoch(metric: _ResultMetric) -> bool:
    """Logged when an epoch begins or ends, not of a batch."""
    hook = metric.meta.fx.partition(".")[0]
    return hook.startswith("on_") and "batch" not in hook


def _logged(metric: _ResultMetric) -> Logged:
    meta = metric.meta
    told = [meta.fx, meta.name, meta.prog_bar, meta.logger, meta.on_step, meta.add_dataloader_idx, meta.dataloader_idx]
    reduction = "mean" if meta.is_mean_reduction else meta.reduce_fx.__name__
    weight = float(metric.cumulated_batch_size) if meta.is_mean_reduction else 1.0
    return Logged(float(metric.value), weight, [*told, meta.metric_attribute, meta.sync.should, reduction])


def reduced(parts: Iterable[Logged]) -> float:
    """The mean, sum, min or max over all parts."""
    parts = list(parts)
    values = [part.value for part in parts]
    if parts[0].reduction == "mean":
        weight = sum(part.weight for part in parts)
        return sum(values) / weight if weight else math.nan
    if any(math.isnan(value) for value in values):
        return math.nan
    by_name: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max}
    return by_name[parts[0].reduction](values)


def exchange(value: Any, device: torch.device) -> list[Any]:
    """Everyone's value, of what JSON has, in the order of the workers."""
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    sizes = _gather(torch.tensor([len(text)], device=device))
    letters = _gather(torch.nn.functional.pad(text, (0, int(max(sizes)) - len(text))))
    return [json.loads(bytes(letter[: int(size)].tolist())) for letter, size in zip(letters, sizes, strict=True)]


def _gather(tensor: Tensor) -> list[Tensor]:
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor)
    return gathered


def _sums(results: _ResultCollection) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Nothing stands for one that is to be begun anew."""
    return {
        key: (metric.value, getattr(metric, "cumulated_batch_size", None))
        for key, metric in results.items()
        if metric.is_tensor and not metric.has_reset
    }


def _forget(results: _ResultCollection, before: dict[str, tuple[Tensor, Tensor | None]]) -> None:
    """A value that was logged for the first time stays with the weight nothing."""
    for key, metric in results.items():
        if metric.is_tensor and key in before:
            metric.value = before[key][0]
            if before[key][1] is not None:
                metric.cumulated_batch_size = before[key][1]
        elif metric.is_tensor and not metric.has_reset:
            metric.reset()
            metric.has_reset = False
