"""Shares validation, test and prediction between the processes of a group: who has which samples, metrics over all.

Each sample counts once. A repeated step, on a batch that another worker counts, leaves no trace in the model.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchmetrics import Metric

from scalebook.training.lightning.data.epoch_order import EpochOrder, Indices, index_sampler
from scalebook.training.lightning.package import (
    Trainer,
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
    has_iterable_dataset,
    rank_zero_info,
    sized_len,
)

Restore = Callable[[], object]
_TORCH: Final = frozenset(vars(Module())) - {"_buffers"}
_COUNT: Final = "_update_count"
"""An attribute of torchmetrics that only warns about an early `compute`; it is not restored, since a step has been
made."""


@contextmanager
def undone(parts: Iterable[Module]) -> Iterator[None]:
    """Restore tensors, lists, dicts, sets and plain values of a model's parts (also torchmetrics) after the block.

    Tensors within lists, and objects of other classes, are not restored, nor parameters, which must not change here.
    """
    restore: list[Restore] = []
    seen: set[int] = set()
    for part in parts:
        _keep_module(part, restore, seen)
    try:
        yield
    finally:
        with torch.no_grad():
            for each in reversed(restore):
                each()


@contextmanager
def undone_but_for_empty_parts(metrics: list[Metric]) -> Iterator[None]:
    """Like `undone`, but a list that was empty then holds an empty tensor: torchmetrics of several workers exchange
    such lists, and need tensors with the same number of dimensions from each."""
    states = [
        (metric, name) for metric in metrics for name, state in metric._defaults.items() if isinstance(state, list)
    ]
    with undone(metrics):
        yield
        added = [getattr(metric, name)[:1] for metric, name in states]
    for (metric, name), tensors in zip(states, added, strict=True):
        if not getattr(metric, name):
            getattr(metric, name).extend(tensor[:0] for tensor in tensors if tensor.dim())


def _keep_module(module: Module, restore: list[Restore], seen: set[int]) -> None:
    if id(module) in seen:
        return
    seen.add(id(module))
    attributes = {name: value for name, value in vars(module).items() if name not in _TORCH and name != _COUNT}
    restore.append(lambda: vars(module).update(attributes))
    for value in attributes.values():
        _keep(value, restore, seen)


def _keep(value: Any, restore: list[Restore], seen: set[int]) -> None:
    if isinstance(value, Module):
        for part in value.modules():
            _keep_module(part, restore, seen)
    elif id(value) not in seen and isinstance(value, Tensor | list | dict | set) and not isinstance(value, Parameter):
        seen.add(id(value))
        _keep_content(value, restore, seen)


def _keep_content(
    value: Tensor | list[Any] | dict[Any, Any] | set[Any], restore: list[Restore], seen: set[int]
) -> None:
    if isinstance(value, Tensor):
        copied = value.detach().clone()
        restore.append(lambda: value.detach().copy_(copied))
        return
    before = value.copy()
    if isinstance(value, list):
        restore.append(lambda: value.__setitem__(slice(None), before))
        inside = [each for each in before if not isinstance(each, Tensor)]
    else:
        restore.append(lambda: (value.clear(), value.update(before)))
        inside = list(before.values()) if isinstance(before, dict) else []
    for each in inside:
        _keep(each, restore, seen)


class EvaluationShare:
    """The sampler of one worker's loader, with its batches; batch i of the data belongs to worker i % workers.

    All workers make the same number of rounds, with batches of one size in each, since a step may call collectives. If
    fewer batches than workers are left, the workers without one repeat a batch and do not count it. A smaller last
    batch has a round of its own.

    Args:
        limit: trainer.limit_val_batches or limit_test_batches, which limits the whole data, as in one process.
    """

    def __init__(self, loader: DataLoader[Any], worker: int, workers: int, limit: float) -> None:
        self._order, self._worker, self._workers = EpochOrder(loader, alone=False), worker, workers
        self._limit: Final = limit
        source: Any = index_sampler(loader)
        batches = len(source)
        self.batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        """Samples of all workers."""
        in_slices = type(source) is BatchSampler
        rest = len(source.sampler) % source.batch_size if in_slices else 0
        self._smaller = int(rest > 0 and not source.drop_last and self.batches == batches)
        self.rounds = -(-(self.batches - self._smaller) // workers) + self._smaller
        self.samples = 0
        """That this worker counts in an epoch."""
        self._epoch = 0

    def counts(self, index: int) -> bool:
        """Whether this worker's batch at `index` counts, and is not a repetition."""
        return self._place(index)[1]

    def _place(self, index: int) -> tuple[int, bool]:
        full = self.batches - self._smaller
        if self._smaller and index == self.rounds - 1:
            return self.batches - 1, self._worker == full % self._workers
        place = index * self._workers + self._worker
        return min(place, full - 1), place < full

    def __len__(self) -> int:
        """The number that Lightning multiplies by a fractional trainer.limit_val_batches to get the rounds."""
        if isinstance(self._limit, int) or self._limit in (0.0, 1.0):
            return self.rounds
        length = self.rounds
        while int(length * self._limit) < self.rounds:
            length += 1
        return length

    def __iter__(self) -> Iterator[Indices]:
        self._order.enter(self._epoch)
        batches = self._order(self._epoch)
        self._epoch += 1
        places = [self._place(index) for index in range(self.rounds)]
        self.samples = sum(_size(batches[place]) for place, counts in places if counts)
        return iter([batches[place] for place, _ in places])


def _size(indices: Indices) -> int:
    return len(indices) if isinstance(indices, list | tuple) else 1


def share_of(trainer: Trainer, loader: Any, worker: int, workers: int) -> Any:
    """The loader with this worker's batches; unchanged if its data have no length or the user has divided them."""
    if (
        not trainer._accelerator_connector.use_distributed_sampler
        or not isinstance(loader, DataLoader)
        or has_iterable_dataset(loader)
        or sized_len(loader) is None
        or (isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas > 1)
    ):
        return loader
    limit = trainer.limit_test_batches if trainer.testing else trainer.limit_val_batches
    share = EvaluationShare(loader, worker, workers, limit)
    shared = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    for attribute, value in (("_iterator", None), (name, share)):
        object.__setattr__(shared, attribute, value)  # a DataLoader guards its samplers against mistakes
    return shared


def share_in(loader: Any) -> EvaluationShare | None:
    """The EvaluationShare that `share_of` has put into the loader, if any."""
    share = index_sampler(loader) if isinstance(loader, DataLoader) else None
    return share if isinstance(share, EvaluationShare) else None


OWN: Final = "log: {} is not reduced over all workers, because of rank_zero_only or sync_dist_group."
MEAN: Final = (
    "log: {} is computed by each worker from its own data when the epoch ends. The mean over workers, weighted by "
    "samples, equals the value of one process only for metrics that are means over samples. Log it in the step, or use "
    "a torchmetric."
)


class Logged(NamedTuple):
    """One worker's part of a logged value: the sum and its weight (for a mean), or the reduced value."""

    value: float
    weight: float
    meta: list[Any]
    """The arguments of `log`, for a worker that has not logged it."""

    @property
    def reduction(self) -> str:
        return str(self.meta[-1])


class _Reducing(Protocol):
    @property
    def root_device(self) -> torch.device: ...

    @property
    def data_group(self) -> Any: ...

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any: ...


class WorkersMetrics:
    """Reduces one Trainer's metrics over all workers, from `install` on. `own_metrics` gets the names of those that are
    not reduced."""

    def __init__(self, trainer: Trainer, strategy: _Reducing, own_metrics: set[str]) -> None:
        self._trainer, self._strategy, self._own = trainer, strategy, own_metrics
        self._said: set[str] = set()

    def install(self) -> None:
        """Hook into Lightning: before it reduces an epoch's metrics, and around the steps of its evaluations."""
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

    def _first(self, action: Callable[[], None], then: Callable[[], None]) -> None:
        action()
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
        logged = {}
        for key, metric in results.valid_items():
            if not metric.is_tensor or not metric.meta.on_epoch or metric._computed is not None:
                continue
            if metric.meta.sync.rank_zero_only or metric.meta.sync.group is not None:
                self._say(OWN, metric.meta.name)
                if metric.meta.sync.rank_zero_only:
                    metric.compute()
            elif chosen(metric):
                logged[key] = _logged(metric)
        samples, everyone = [], []
        for count, message in self._exchanged([self._samples(), logged]):
            samples.append(count)
            everyone.append({key: Logged(*each) for key, each in message.items()})
        for key in sorted({key for message in everyone for key in message}):
            parts = [(message[key], count) for message, count in zip(everyone, samples, strict=True) if key in message]
            metric = results[key] if key in results else self._missing(results, key, parts[0][0])
            value = self._of_all(metric, parts)
            metric.has_reset = False
            metric._computed = torch.tensor(value, dtype=metric.value.dtype, device=metric.value.device)

    def _exchanged(self, value: Any) -> list[Any]:
        return exchange(value, self._strategy.root_device, self._strategy.data_group)

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
        *args, index, attribute, should, reduction = part.meta
        fx, name, prog_bar, logger, on_step, add_index = args
        meta = _Metadata(
            fx, name, prog_bar, logger, on_step, True, getattr(torch, reduction), False, add_index, index, attribute
        )
        meta.sync = _Sync(fn=self._strategy.reduce, _should=should)
        metric: _ResultMetric = _ResultMetric(meta, is_tensor=True).to(self._strategy.root_device)
        results[key] = metric
        return metric

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
    args = [meta.fx, meta.name, meta.prog_bar, meta.logger, meta.on_step, meta.add_dataloader_idx, meta.dataloader_idx]
    reduction = "mean" if meta.is_mean_reduction else meta.reduce_fx.__name__
    weight = float(metric.cumulated_batch_size) if meta.is_mean_reduction else 1.0
    return Logged(float(metric.value), weight, [*args, meta.metric_attribute, meta.sync.should, reduction])


def reduced(parts: Iterable[Logged]) -> float:
    """The mean, sum, min or max over the parts."""
    parts = list(parts)
    values = [part.value for part in parts]
    if parts[0].reduction == "mean":
        weight = sum(part.weight for part in parts)
        return sum(values) / weight if weight else math.nan
    if any(math.isnan(value) for value in values):
        return math.nan
    by_name: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max}
    return by_name[parts[0].reduction](values)


def exchange(value: Any, device: torch.device, group: Any = None) -> list[Any]:
    """The values of all workers of a group, in order; a value is anything that JSON can hold."""
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    sizes = _gather(torch.tensor([len(text)], device=device), group)
    messages = _gather(torch.nn.functional.pad(text, (0, int(max(sizes)) - len(text))), group)
    return [json.loads(bytes(message[: int(size)].tolist())) for message, size in zip(messages, sizes, strict=True)]


def _gather(tensor: Tensor, group: Any) -> list[Tensor]:
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, tensor, group)
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
