"""Int8, sign and QSGD: few bits for a value, and a scale for each block of values."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from scalebook.training.ps.codecs.kernels import Kernel, finite, generator
from scalebook.training.ps.policy.codecs import Int8, Qsgd, Sign, blocks
from scalebook.training.ps.policy.frames import Shape

_TINY: Final = 1e-30
"""A block whose largest value is below this is zeros: its scale's inverse would overflow."""


class Blocks:
    """Where the blocks of `count` values lie: those that are whole, as rows, then what is left, as one row."""

    def __init__(self, count: int, block: int) -> None:
        whole = count // block
        self.spans = [(0, whole * block, 0, whole)] if whole else []
        if count % block:
            self.spans.append((whole * block, count, whole, whole + 1))

    def rows(self, scales: Tensor, *values: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Scales [rows, 1] and values [rows, block] of what is whole, then of what is left."""
        for start, end, first, last in self.spans:
            rows = last - first
            yield scales[first:last].view(rows, 1), *(v[start:end].view(rows, -1) for v in values)


class Int8Kernel(Kernel[Int8]):
    """scale = max |x| / 127; code = round(x / scale), halves to even."""

    def __init__(self, codec: Int8, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        codes, scales = parts
        for scale, x, scaled, code in self._blocks.rows(scales, values, scratch, codes):
            largest = torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg_())
            usable = largest > _TINY  # not where NaN
            torch.where(usable, largest / 127, torch.where(largest.isnan(), largest, 0.0), out=scale)
            torch.mul(x, torch.where(usable, 127 / largest, 0.0), out=scaled).round_()
            code.copy_(scaled)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        codes, scales = parts
        for scale, x, code in self._blocks.rows(scales, values, codes):
            x.copy_(code)
            x.mul_(scale)


class SignKernel(Kernel[Sign]):
    """scale = mean |x|; a bit is 1 where x is negative."""

    def __init__(self, codec: Sign, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)
        self._eight = 1.0 - 2.0 * torch.from_numpy(np.unpackbits(np.arange(256, dtype=np.uint8))).view(256, 8).float()
        self._padded = torch.empty(-(-self.count // 8), 8)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        bits, scales = parts
        torch.abs(values, out=scratch)
        for scale, magnitude in self._blocks.rows(scales, scratch):
            torch.mean(magnitude, 1, keepdim=True, out=scale)
        bits.numpy()[:] = np.packbits(values.numpy() < 0)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        bits, scales = parts
        torch.index_select(self._eight, 0, bits.int(), out=self._padded)
        signs = self._padded.view(-1)[: self.count]
        for scale, x, sign in self._blocks.rows(scales, values, signs):
            torch.mul(sign, scale, out=x)


class QsgdKernel(Kernel[Qsgd]):
    """scale = ||x|| / levels; code = round(x / scale + u), u even from -1/2 to below 1/2 in steps of 2**-16.

    With error feedback what is decoded is divided by 1 + variance, which makes it a contraction.
    """

    def __init__(self, codec: Qsgd, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)
        self._drawn = torch.empty(-(-self.count // 4), dtype=torch.int64)
        self._per_byte = 8 // codec.bits
        self._codes = torch.zeros(blocks(self.count, self._per_byte) * self._per_byte, dtype=torch.uint8)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        packed, scales = parts
        self._drawn.random_(-(2**63), None, generator=generator(draw))
        dither = self._drawn.view(torch.int16)[: self.count]  # whole numbers, of -2**15 to 2**15 - 1
        for scale, x, scaled in self._blocks.rows(scales, values, scratch):
            torch.linalg.vector_norm(x, 2, 1, keepdim=True, out=scale).div_(self.codec.levels)
            usable = scale > _TINY  # not where NaN
            torch.mul(x, torch.where(usable, 1 / scale, 0.0), out=scaled)
            scale.copy_(torch.where(usable | scale.isnan(), scale, 0.0))
        most = float(self.codec.levels)
        scratch.add_(dither, alpha=2.0**-16).round_().clamp_(-most, most).add_(most)
        self._codes[: self.count] = scratch
        self._pack(packed)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        packed, scales = parts
        self._unpack(packed)
        values.copy_(self._codes[: self.count]).sub_(float(self.codec.levels))
        factor = 1 / (1 + self.codec.variance) if feedback else 1.0
        for scale, x in self._blocks.rows(scales, values):
            x.mul_(scale * factor)

    def _pack(self, packed: Tensor) -> None:
        """The first code lies in the lowest bits."""
        if self._per_byte == 1:
            packed.copy_(self._codes)
            return
        codes = self._codes.view(-1, self._per_byte)
        packed.copy_(codes[:, 0])
        for place in range(1, self._per_byte):
            packed |= codes[:, place] << (place * self.codec.bits)

    def _unpack(self, packed: Tensor) -> None:
        codes, mask = self._codes.view(-1, self._per_byte), 2**self.codec.bits - 1
        for place in range(self._per_byte):
            codes[:, place] = packed >> (place * self.codec.bits) & mask
