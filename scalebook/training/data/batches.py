"""Batches from memory: one indexing operation a batch, no Python work a sample."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from scalebook.training.data.images import LabelledImages
from scalebook.training.shuffle import EpochShuffle

Batch = tuple[torch.Tensor, torch.Tensor]
"""images float32 [batch, channels, height, width], labels int64 [batch]."""


class ImageBatches(Dataset[Batch]):
    """Images held as bytes, a quarter of the memory of floats, and scaled when their batch is drawn.

    `__getitems__` draws a whole batch.
    """

    def __init__(self, data: LabelledImages, mean: torch.Tensor, scale: torch.Tensor) -> None:
        """`mean` and `scale` are float32 [channels], in levels: a value is (level - mean) / scale."""
        self.pixels, self.labels = data
        self.scale = scale.view(-1, 1, 1)
        self.mean = mean.view(-1, 1, 1) if bool(mean.any()) else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> Batch:
        rows = torch.from_numpy(np.array(indices))  # a quarter of the time of torch.tensor
        images = self.pixels.index_select(0, rows).float()
        if self.mean is not None:
            images -= self.mean
        return images.div_(self.scale), self.labels.index_select(0, rows)


class MemoryLoader(DataLoader[Batch]):
    """A DataLoader without what it does for slow data sets, which costs more than drawing a batch from memory.

    Everything else is torch's, so Lightning can rebuild it with a distributed sampler.
    """

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]  # torch promises a private iterator class
        assert isinstance(self.dataset, ImageBatches)
        assert self.batch_sampler is not None
        yield from map(self.dataset.__getitems__, self.batch_sampler)


def loader(images: ImageBatches, batch_size: int, shuffle: bool) -> MemoryLoader:
    """Batches in the worker's own process, the last one smaller where they do not divide evenly."""
    return MemoryLoader(images, batch_size=batch_size, sampler=EpochShuffle(images) if shuffle else None)
