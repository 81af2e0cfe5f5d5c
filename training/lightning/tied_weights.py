"""Parameters that share memory without being one object, as after `b.weight.data = a.weight.data`."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy


def refuse_shared_memory(module: Module) -> None:
    """ValueError, with remedy, for a trained parameter that shares memory with another parameter or a buffer: each
    would get memory of its own, and they would not stay equal."""
    named = [*module.named_parameters(), *module.named_buffers()]
    for (name, one), (other_name, other) in _overlapping((name, one) for name, one in named if _is_plain(one)):
        if one.requires_grad or other.requires_grad:
            raise ValueError(
                f"model: {name} and {other_name} are two tensors in the same memory, which workers would train "
                "separately. Make them one parameter (b.weight = a.weight), or make a copy "
                "(b.weight.data = a.weight.data.clone())."
            )


def _is_plain(tensor: Tensor) -> bool:
    has_values = not is_lazy(tensor) and type(tensor.data) is Tensor and not tensor.is_meta
    return has_values and tensor.layout is torch.strided and tensor.numel() > 0


def _overlapping(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[tuple[str, Tensor], tuple[str, Tensor]]]:
    """Pairs with elements in common: of each tensor and the one before it that reaches furthest in memory."""
    placed = sorted(tensors, key=lambda one: (str(one[1].device), one[1].data_ptr()))
    furthest: tuple[str, Tensor] | None = None
    for one in placed:
        if furthest is None or one[1].device != furthest[1].device or _end(furthest[1]) <= one[1].data_ptr():
            furthest = one
            continue
        if _have_common(furthest[1], one[1]):
            yield furthest, one
        furthest = max(furthest, one, key=lambda each: _end(each[1]))


def _have_common(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors whose ranges of memory overlap have elements in common: the halves of a matrix by columns
    have none."""
    where = (one.data_ptr(), one.shape, one.stride())
    return where == (other.data_ptr(), other.shape, other.stride()) or bool(
        torch.isin(_addresses(one), _addresses(other)).any()
    )


def _end(tensor: Tensor) -> int:
    """The address after its last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _addresses(tensor: Tensor) -> Tensor:
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = offsets[..., None] + torch.arange(size) * stride
    return offsets.flatten() * tensor.element_size() + tensor.data_ptr()
