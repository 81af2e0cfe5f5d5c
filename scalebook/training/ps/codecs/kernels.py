"""What a codec does to values that lie one behind the other, as fp32; each the inverse of the other up to its loss."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from scalebook.training.ps.policy.frames import Codec, Shape, numel

Declared = TypeVar("Declared", bound=Codec)


class Kernel(ABC, Generic[Declared]):
    """One codec over tensors of these shapes; without state."""

    casts = False
    """Whether it only changes the type of the values, so that they need not lie one behind the other before."""

    def __init__(self, codec: Declared, shapes: Sequence[Shape]) -> None:
        self.codec, self.shapes, self.count = codec, shapes, numel(shapes)

    @abstractmethod
    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        """Encode `values` [count] into `parts`; False where they are not all finite, and `parts` mean nothing.

        `draw`: seed of what is drawn. `kept`: what the sender keeps beside the residual, brought up to date in place;
        None without error feedback. `scratch` [count]: to be written to.
        """

    @abstractmethod
    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        """Decode into `values` [count]. `feedback`: whether the sender has error feedback. FrameError for what no
        `write` has written."""


class Cast(Kernel[Codec]):
    """Bf16 and fp16."""

    casts = True

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        parts[0].copy_(values)
        return True  # who casts looks at what it has become

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        values.copy_(parts[0])


def finite(values: Tensor) -> bool:
    """Whether all are; also False where their sum is too large for its type."""
    return bool(torch.isfinite(values.sum()))


def generator(draw: int) -> torch.Generator:
    """Of the numbers that belong to a frame. All 64 bits of `draw` count: torch's generator takes the lowest 32 alone,
    so they are mixed first (SplitMix64's finalizer, Steele et al. 2014)."""
    mixed = ((draw ^ draw >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) % 2**64
    return torch.Generator().manual_seed((mixed ^ mixed >> 31) % 2**32)
