"""State that is neither one tensor nor one number: lists, tuples and dicts of tensors, texts, None."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

_CONSTANT: Final = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)


@dataclass(frozen=True)
class Hole:
    """Where in a form a tensor belongs, and which."""

    number: int


def cut_out(value: Any) -> tuple[Any, list[Tensor]]:
    """A value as its form, which has holes where its tensors were, and these in order. TypeError, naming the type, for
    what is no tensor, no constant, and no list, tuple or dict of them."""
    tensors: list[Tensor] = []
    return _cut_out(value, tensors), tensors


def _cut_out(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return Hole(len(tensors) - 1)
    if type(value) in _CONSTANT:
        return value
    if type(value) is dict:
        return {key: _cut_out(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cut_out(item, tensors) for item in value)
    raise TypeError(type(value).__name__)


def filled(form: Any, tensors: Sequence[Tensor]) -> Any:
    """The inverse of `cut_out`, with containers of its own."""
    if isinstance(form, Hole):
        return tensors[form.number]
    if type(form) is dict:
        return {key: filled(item, tensors) for key, item in form.items()}
    if type(form) in (list, tuple):
        return type(form)(filled(item, tensors) for item in form)
    return form
