"""A step of a model that leaves no trace in it: what its attributes hold afterwards is what they held before."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torchmetrics import Metric

Restore = Callable[[], object]
_TORCH: Final = frozenset(vars(Module())) - {"_buffers"}
_COUNT: Final = "_update_count"
"""Of torchmetrics: what it tells of is whether `compute` comes too early, and a step has been made."""


@contextmanager
def undone(parts: Iterable[Module]) -> Iterator[None]:
    """Restore tensors, lists, dicts, sets and plain values of a model's parts, torchmetrics among them.

    Tensors within lists, and objects of other classes, are not looked into. Parameters are nobody's to change here.
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
    """So that a list that was empty holds an empty tensor: torchmetrics of several workers exchange the lists, and need
    tensors of as many dimensions from each.
    """
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
