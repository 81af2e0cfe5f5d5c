"""Tensors as raw bytes, without a copy."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from scalebook.training.engine.memory.layout import LayoutEntry


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a dense CPU tensor, in memory order. They keep the tensor alive."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    lent: Any = (ctypes.c_char * size).from_address(tensor.data_ptr())
    lent.tensor = tensor  # which so lives as long as any part of the bytes does
    return memoryview(lent).cast("B")


def as_laid_out(tensor: Tensor, field: LayoutEntry) -> Tensor:
    """The same values on the CPU with the field's strides; the tensor itself if it has these."""
    if tensor.device.type == "cpu" and tensor.dtype == field.dtype and tensor.stride() == field.stride:
        return tensor
    return torch.empty_strided(field.shape, field.stride, dtype=field.dtype).copy_(tensor)
