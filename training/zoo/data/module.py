"""What the image data sets have in common: the arguments, the split, and batches drawn from memory."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from typing_extensions import override

from scalebook.training.base import extras
from scalebook.training.zoo.data.whole import pins
from scalebook.training.zoo.shuffle import EpochShuffle
from scalebook.training.zoo.skew import skewed


class DataError(RuntimeError):
    """A data set's file is missing, damaged, or not what it should be; the message says what to do about it."""


Batch = tuple[torch.Tensor, torch.Tensor]
"""images float32 [batch, channels, height, width], labels int64 [batch]."""


@dataclass(frozen=True)
class ImageSpec:
    """The geometry of a data set's images, as the models need it.

    A batch is `(images, labels)`: float32 [batch, channels, height, width] and int64 [batch]. Unless `normalized`,
    a pixel of level k (an integer from 0 to levels - 1) has the value k / (levels - 1).
    """

    channels: int
    height: int
    width: int
    levels: int = 256
    classes: int = 10
    normalized: bool = False


class LabelledImages(NamedTuple):
    """`pixels` uint8 [images, channels, height, width] in levels, `labels` int64 [images]; shared, never modified."""

    pixels: torch.Tensor
    labels: torch.Tensor


def held_out(group: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which samples validate, bool [samples]: about `fraction` of the groups, at least one and not all of them.

    group: int64 [samples], counted from 0. The same arguments give the same split in every version: numpy guarantees
    RandomState's stream.
    """
    groups = int(group.max()) + 1
    count = min(max(1, round(fraction * groups)), groups - 1)
    return np.isin(group, np.random.RandomState(seed).permutation(groups)[:count])


def stratified_split(labels: torch.Tensor, val_fraction: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of the training and of the validation samples, each in ascending order.

    `ceil(val_fraction * n)` samples validate, shared among the classes in proportion (largest remainders first). The
    same arguments give the same split in every version: numpy guarantees RandomState's stream.
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    exact = counts * math.ceil(val_fraction * len(labels)) / len(labels)
    quota = np.floor(exact).astype(int)
    missing = math.ceil(val_fraction * len(labels)) - quota.sum()
    quota[np.argsort(quota - exact, kind="stable")[:missing]] += 1
    draw = np.random.RandomState(seed)
    chosen = np.zeros(len(labels), dtype=bool)
    for label, wanted in zip(classes, quota, strict=True):
        chosen[draw.permutation(np.flatnonzero(labels.numpy() == label))[:wanted]] = True
    return torch.from_numpy(np.flatnonzero(~chosen)), torch.from_numpy(np.flatnonzero(chosen))


Part = Literal["train"]
EVALUATION_BATCH = 256  # images; validation needs no gradients, and its result does not depend on the batch


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
    """A DataLoader without the machinery for slow data sets, which costs more than drawing a batch from memory.

    Everything else is torch's, so Lightning can rebuild it with a distributed sampler.
    """

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]  # torch promises a private iterator class
        assert isinstance(self.dataset, ImageBatches)
        assert self.batch_sampler is not None
        for rows in self.batch_sampler:
            images, labels = self.dataset.__getitems__(rows)
            yield (images.pin_memory(), labels.pin_memory()) if self.pin_memory else (images, labels)


class ImageDataModule(LightningDataModule, ABC):
    """Images in memory. A subclass names their geometry in `spec` and reads its files in `read`.

    Files are read in `setup`, by every worker for itself. Loaders are plain DataLoaders, so Lightning gives each worker
    its own share of the samples under every distributed strategy.
    """

    spec: ImageSpec
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that only an extra installs: see `base/extras.py`."""

    def __init__(
        self,
        batch_size: int,
        limit: int | None,
        val_fraction: float,
        split_seed: int,
        normalize: bool,
        skew: float | None,
    ) -> None:
        super().__init__()
        extras.require("data", type(self))
        self.batch_size = batch_size
        self.limit = limit
        self.val_fraction = val_fraction
        self.split_seed = split_seed
        self.normalize = normalize
        self.skew = skew
        self._parts: dict[str, ImageBatches] = {}

    @property
    def images(self) -> ImageSpec:
        """The geometry of a batch's images; known before any file is read."""
        return replace(self.spec, normalized=self.normalize)

    @abstractmethod
    def read(self, part: Part) -> LabelledImages:
        """The images of one of the original parts, from files that are there already. Raises DataError."""

    def split(self) -> tuple[LabelledImages, LabelledImages]:
        """The samples that may train (the first `limit` do), and those that validate; the same in every worker."""
        whole = self.read("train")
        train_rows, val_rows = stratified_split(whole.labels, self.val_fraction, self.split_seed)
        return _rows(whole, train_rows), _rows(whole, val_rows)

    @override
    def setup(self, stage: str) -> None:
        if "train" not in self._parts:
            whole, val = self.split()
            some = self._limit(len(whole.labels))
            train = LabelledImages(whole.pixels[:some], whole.labels[:some])
            mean, scale = _moments(train.pixels) if self.normalize else self._to_unit_interval()
            self._parts["train"] = ImageBatches(train, mean, scale)
            self._parts["val"] = ImageBatches(val, mean, scale)

    @override
    def train_dataloader(self) -> DataLoader[Batch]:
        images = self._parts["train"]
        return loader(images, self.batch_size, self.sampler(images, images.labels), pins(self))

    def sampler(self, samples: Sized, labels: Tensor) -> Sampler[int]:
        """The order of the training samples, whose labels are int64 [samples]."""
        if self.skew is None:
            return EpochShuffle(samples)
        return skewed(labels, self.batch_size, self.skew, self.trainer)

    @override
    def val_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation("val")

    @override
    def predict_dataloader(self) -> DataLoader[Batch]:
        """The validation images."""
        return self._evaluation("val")

    def _evaluation(self, part: str) -> DataLoader[Batch]:
        return loader(self._parts[part], max(self.batch_size, EVALUATION_BATCH), None, pins(self))

    def _to_unit_interval(self) -> tuple[torch.Tensor, torch.Tensor]:
        channels = self.spec.channels
        return torch.zeros(channels), torch.full((channels,), float(self.spec.levels - 1))

    def _limit(self, available: int) -> int:
        if self.limit is not None and self.limit > available:
            rank_zero_warn(f"data.init_args.limit is {self.limit}, but there are only {available} training samples.")
        return available if self.limit is None else min(self.limit, available)


def loader(images: ImageBatches, batch_size: int, sampler: Sampler[int] | None, pin: bool = False) -> MemoryLoader:
    """Batches in the worker's own process, the last one smaller where they do not divide evenly."""
    return MemoryLoader(images, batch_size=batch_size, sampler=sampler, pin_memory=pin)


def _rows(data: LabelledImages, rows: torch.Tensor) -> LabelledImages:
    return LabelledImages(data.pixels[rows], data.labels[rows])


def _moments(pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, in levels; from counts, without a copy of all pixels as floats."""
    by_channel = pixels.transpose(0, 1).flatten(1)
    counts = torch.stack([torch.bincount(channel, minlength=256) for channel in by_channel]).double()
    shares = counts / counts.sum(1, keepdim=True)
    level = torch.arange(256, dtype=torch.float64)
    mean = shares @ level
    deviation = (shares @ level.square() - mean.square()).clamp_min(0).sqrt()
    if bool((deviation == 0).any()):
        raise DataError(
            "All training pixels are equal, so they cannot be normalised. Set data.init_args.normalize to false."
        )
    return mean.float(), deviation.float()
