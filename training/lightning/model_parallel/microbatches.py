"""The microbatches of a batch, and what a step that is called for each of them logs: once, as one step of the batch."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from numbers import Number
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torchmetrics import Metric

from scalebook.training.lightning.package import LightningModule

MEAN: Final = "mean"


def divide(batch: Any, count: int) -> list[tuple[Any, float]]:
    """At most `count` microbatches, as equal as they can be, each with its share of the samples.

    Tensors are divided along their first dimension; 0-dimensional ones and None are in each. ValueError for what else a
    batch has.
    """
    leaves, spec = tree_flatten(batch)
    sizes = {len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()}
    other = next((type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor | None)), None)
    if other is not None or len(sizes) != 1:
        why = f"contains a {other}" if other else f"contains tensors of {sorted(sizes)} samples"
        raise ValueError(
            f"data: a pipeline splits the tensors of a batch by samples, but this batch {why}. Use a collate_fn that "
            "returns only tensors, all with the same first dimension."
        )
    (samples,) = sizes
    count = min(count, samples)
    pieces = [
        leaf.tensor_split(count) if isinstance(leaf, Tensor) and leaf.dim() else [leaf] * count for leaf in leaves
    ]
    ends = torch.arange(samples).tensor_split(count)
    return [
        (tree_unflatten(list(piece), spec), len(end) / samples)
        for piece, end in zip(zip(*pieces, strict=True), ends, strict=True)
    ]


class LoggedCall(NamedTuple):
    """One call of `self.log` in a microbatch."""

    share: float
    value: Any
    """A number; of a torchmetric what its forward pass gave, or None."""
    metric: str | None
    """The torchmetric's name in the module."""
    options: dict[str, Any]


class StepLog:
    """Takes the calls of a module's `log` in the steps of microbatches."""

    def __init__(self, module: LightningModule) -> None:
        self._module = module
        self._taken: dict[str, list[LoggedCall]] = {}
        self._share = 1.0

    @contextmanager
    def taking(self, share: float, drops: bool = False) -> Any:
        """In the block nothing is logged, but kept for `summary`, unless it `drops`. `share`: of the samples."""
        self._share = share
        self._module.log = self._drop if drops else self._take  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._module.log

    def _drop(self, *args: Any, **kwargs: Any) -> None:
        """The last stage logs."""

    def _take(self, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(zip(OPTIONS, args, strict=False)) | kwargs
        options = {key: given for key, given in options.items() if given is not None}
        metric = None
        if isinstance(value, Metric):
            metric = next((path for path, part in self._module.named_modules() if part is value), None)
        if metric is None and not isinstance(value, Tensor | Number):
            type(self._module).log(self._module, name, value, **options)  # Lightning's error
        if isinstance(value, Metric):
            value = value._forward_cache
        number = float(value.detach() if isinstance(value, Tensor) else value) if value is not None else None
        self._taken.setdefault(name, []).append(LoggedCall(self._share, number, metric, options))

    def summary(self) -> list[LoggedCall]:
        """What one step of the whole batch would have logged, by name: means over samples, sums, extremes."""
        taken, self._taken = self._taken, {}
        return [_together(name, calls) for name, calls in taken.items()]

    def repeat(self, summary: Iterable[LoggedCall]) -> None:
        """Log it, in any worker."""
        for one in summary:
            value: Any = one.value
            if one.metric is not None:
                value = self._module.get_submodule(one.metric)
                value._forward_cache = (
                    None if one.value is None else torch.tensor(one.value, device=self._module.device)
                )
            self._module.log(value=value, **one.options)


OPTIONS: Final = (
    "prog_bar", "logger", "on_step", "on_epoch", "reduce_fx", "enable_graph", "sync_dist", "sync_dist_group",
    "add_dataloader_idx", "batch_size", "metric_attribute", "rank_zero_only",
)  # fmt: skip
"""The arguments of `log` after name and value, in order."""


def _together(name: str, calls: list[LoggedCall]) -> LoggedCall:
    options = {**calls[-1].options, "name": name}
    if callable(options.get("reduce_fx")):
        options["reduce_fx"] = options["reduce_fx"].__name__  # by name to other workers; Lightning knows four
    weights = [call.share for call in calls]
    if all("batch_size" in call.options for call in calls):
        weights = [float(call.options["batch_size"]) for call in calls]
        options["batch_size"] = int(sum(weights))
    reduction = options.get("reduce_fx", MEAN)
    pairs = [(call.value, weight) for call, weight in zip(calls, weights, strict=True) if call.value is not None]
    by_name: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max}
    value = None
    if pairs and reduction in by_name and calls[0].metric is None:
        value = by_name[reduction]([one for one, _ in pairs])
    elif pairs:
        value = sum(one * weight for one, weight in pairs) / sum(weight for _, weight in pairs)
    return LoggedCall(1.0, value, calls[0].metric, options)
