"""Top-k and random-k: a few of the values, and where they belong."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from scalebook.training.ps.codecs.frame import FrameError
from scalebook.training.ps.codecs.kernels import Kernel, finite, generator
from scalebook.training.ps.policy.codecs import RandomK, TopK, shared
from scalebook.training.ps.policy.frames import Shape

_SAMPLE: Final = 8192
"""Magnitudes, evenly spaced, from which the threshold is guessed below which nothing is among the largest."""
_ALL_BELOW: Final = np.uint64(0x0101010101010101)
_SPARE: Final = 4.0
"""Standard deviations of the sample's count by which the guess is low: too high a one costs a second look."""


class TopKKernel(Kernel[TopK]):
    """Exactly the k largest magnitudes, of which equal ones at the border are taken in no order worth a word."""

    def __init__(self, codec: TopK, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._k = shared(codec.share, self.count)
        self._below, self._over = (np.ones(-(-self.count // 8) * 8, dtype=bool) for _ in range(2))

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        places, chosen = parts
        found = self._candidates(values)
        magnitudes = torch.abs(values, out=scratch) if found is None else torch.index_select(values, 0, found).abs_()
        if not finite(magnitudes):  # what is not finite is among the candidates
            return False
        largest = torch.topk(magnitudes, self._k, sorted=False).indices
        if found is not None:
            largest = found[largest]
        largest.numpy().sort()  # neighbours in memory, and what zstd likes; torch's takes ten times as long
        places.copy_(largest)
        torch.index_select(values, 0, largest, out=chosen)
        return True

    def _candidates(self, values: Tensor) -> Tensor | None:
        """Places of all magnitudes from a guessed threshold on, which are k or more; None where that saves nothing.

        What is not below it is one: what is not finite, too, since nothing is true of NaN.
        """
        step = self.count // _SAMPLE
        if step < 2 or self._k * 4 > self.count:
            return None
        sample = values[::step].abs()
        expected = self._k / step
        rank = min(sample.numel(), int(expected + _SPARE * expected**0.5) + 2)
        threshold = np.float32(torch.topk(sample, rank, sorted=False).values.min())
        below, numbers = self._below, values.numpy()
        np.less(numbers, threshold, out=below[: self.count])
        np.greater(numbers, -threshold, out=self._over[: self.count])
        np.bitwise_and(below.view(np.uint64), self._over.view(np.uint64), out=below.view(np.uint64))
        eights = np.flatnonzero(below.view(np.uint64) != _ALL_BELOW)  # of most all are, and need no second look
        within = np.flatnonzero(~below.reshape(-1, 8)[eights])
        found = eights[within >> 3] * 8 + (within & 7)
        return torch.from_numpy(found) if self._k <= found.size else None

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        places, chosen = parts
        if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < self.count):
            raise FrameError(f"frame: places outside of 0 to {self.count - 1}")
        values.zero_()
        values.scatter_(0, places.long(), chosen)


class RandomKKernel(Kernel[RandomK]):
    """Of each of k equal stretches one value, its place drawn evenly, by both sides from the frame's seed."""

    def __init__(self, codec: RandomK, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        k = shared(codec.share, self.count)
        borders = torch.arange(k + 1, dtype=torch.int64) * self.count // max(k, 1)
        self._starts, self._lengths = borders[:-1], borders.diff()

    def _places(self, draw: int) -> Tensor:
        drawn = torch.rand(self._starts.numel(), dtype=torch.float64, generator=generator(draw))
        return self._starts + (drawn * self._lengths).long()

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        torch.index_select(values, 0, self._places(draw), out=parts[0])
        return finite(values)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        values.zero_()
        values.scatter_(0, self._places(draw), parts[0] if feedback else parts[0] * self._lengths)
