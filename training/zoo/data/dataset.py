"""Data of the Hugging Face Hub, or of Parquet, CSV and JSON files and folders of images."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveFloat, PositiveInt
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Samples
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.zoo.data.module import (
    EVALUATION_BATCH,
    Batch,
    DataError,
    ImageDataModule,
    ImageSpec,
    LabelledImages,
    Part,
    held_out,
    stratified_split,
)
from scalebook.training.zoo.data.tabular import TableSource
from scalebook.training.zoo.data.whole import as_it_is, pins

KEY: Final = "data.init_args"
GREY: Final = ("1", "L")
"""Pillow's modes of images with one channel."""
COLOUR: Final = ("P", "RGB", "RGBA", "LA", "CMYK", "YCbCr")


class Numbers(Samples[Batch]):
    """Rows of numbers in memory. `features` float32 [rows, columns]; `labels` [rows], int64 of classes or float32."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.features, self.labels = features, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.features[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> Batch:
        """A whole batch."""
        rows = torch.tensor(indices)
        return self.features[rows], self.labels[rows]


class Dataset(ImageDataModule):
    """A data set of the Hugging Face Hub, or Parquet, CSV, TSV or JSON files, or a folder of images.

    Needs the package datasets: `pip install "scalebook[datasets]"`. Only data is read; no code from the data set runs.
    With a column of images, a batch is (images, labels), with images as float32 [batch, channels, height, width] from 0
    to 1, for every image model. Otherwise, a batch is (numbers, labels), with numbers as float32 [batch, columns], for
    a custom model. Labels are classes (int64), from integers or texts; with columns of numbers, labels may also be
    float32. All data is held in memory, images as bytes.

    Args:
        path: A file, a folder with files of one kind, or a folder with one folder of images per class.
        hub: Name of a data set on the Hub, such as `ylecun/mnist`, instead of a path. It is downloaded once.
        subset: Subset of the data set on the Hub, if it has several.
        revision: Commit, tag or branch of the data set on the Hub. Default: the newest.
        split: Split of the data set on the Hub to train on.
        validation: Validation data: a split of the data set on the Hub, or another file or folder. Default: a share of
            the training data (`val_fraction`).
        features: Columns of the input: one column of images, or several columns of numbers. Default: the column of
            images if there is exactly one, else all columns of numbers.
        label: Column with the label. For a folder of images, it is called `label`.
        batch_size: Samples per batch of one worker.
        limit: Train on only this many samples, taken from the start. Default: all.
        val_fraction: Share of the samples held out for validation if `validation` is null, with the same share of each
            class.
        split_seed: Seed of the split into training and validation samples, independent of the run's seed.
        normalize: Shift and scale each channel, or each column, to mean 0 and standard deviation 1. Not for a PixelCNN.
        skew: How much labels differ between workers: alpha of a Dirichlet distribution, from which each worker draws
            its shares of the labels. With 0.1, a worker has one or two labels; with 100, all workers have nearly the
            same shares. Default: no difference. Each worker keeps its own samples, so all workers wait for the slowest
            one at the end.
    """

    needs = ("datasets",)

    def __init__(
        self,
        path: str | None = None,
        hub: str | None = None,
        subset: str | None = None,
        revision: str | None = None,
        split: str = "train",
        validation: str | None = None,
        features: list[str] | None = None,
        label: str = "label",
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.1,
        split_seed: NonNegativeInt = 0,
        normalize: bool = False,
        skew: PositiveFloat | None = None,
    ) -> None:
        super().__init__(batch_size, limit, val_fraction, split_seed, normalize, skew)
        self.source, self.validation = TableSource(path, hub, subset, revision), validation
        self.training, self.training_key = (split, "split") if path is None else (path, "path")
        self.features, self.label = features, label
        self._numbers: dict[str, Numbers] = {}
        self._read: tuple[LabelledImages, LabelledImages] | None = None

    @override
    def prepare_data(self) -> None:
        """Download and read what is not in the user's cache yet; called in one process of each node."""
        for part, key in self._tables():
            self.source.read(part, key)

    @property
    @override
    def images(self) -> ImageSpec:
        """Known from `setup` on. AttributeError where the data has no images."""
        if self._read is None:
            raise AttributeError("images: this data set has no images, or was not set up.")
        return super().images

    @override
    def setup(self, stage: str) -> None:
        if self._parts or self._numbers:
            return
        tables = [self.source.read(part, key) for part, key in self._tables()]
        columns = _columns(tables[0], self.features, self.label)
        labels, classes = _labels(tables, self.label)
        if classes is not None and len(columns) == 1 and _is_image(tables[0], columns[0]):
            parts = [part for part, _ in self._tables()]
            pixels = [_pixels(table, columns[0], self.source, of) for table, of in zip(tables, parts, strict=True)]
            shapes = {tuple(one.shape[1:]) for one in pixels}
            if len(shapes) > 1:
                raise DataError(f"{KEY}.validation: the images differ in shape from the training images. Convert them.")
            (channels, height, width) = shapes.pop()
            self.spec = ImageSpec(channels, height, width, levels=256, classes=classes)
            self._read = self._in_two([LabelledImages(*both) for both in zip(pixels, labels, strict=True)], classes)
            super().setup(stage)
            return
        if _is_image(tables[0], columns[0]):
            raise DataError(f"{KEY}.label: {self.label} has no classes, but images need classes. Name another column.")
        numbers = [LabelledImages(_numbers(table, columns), of) for table, of in zip(tables, labels, strict=True)]
        if classes is None and self.skew is not None:
            fix = f"Remove skew, or set {KEY}.label to a column of classes."
            raise ConfigError(f"{KEY}.skew", f"divides samples by class, but {self.label} has numbers", fix)
        (train, some), val = self._in_two(numbers, classes)
        count = self._limit(len(some))
        train, some = train[:count], some[:count]
        shift, scale = torch.zeros(len(columns)), torch.ones(len(columns))
        if self.normalize:
            scale, shift = torch.std_mean(train, 0, correction=0)
            if constant := [name for name, one in zip(columns, scale, strict=True) if not one > 0]:
                raise DataError(f"{KEY}.normalize: column {constant[0]} has only one value. Leave it out of features.")
        self._numbers = {
            "train": Numbers((train - shift) / scale, some),
            "val": Numbers((val.pixels - shift) / scale, val.labels),
        }

    @override
    def read(self, part: Part) -> LabelledImages:
        raise AssertionError("`split` has both parts")

    @override
    def split(self) -> tuple[LabelledImages, LabelledImages]:
        assert self._read is not None, "`setup` reads first"
        return self._read

    @override
    def train_dataloader(self) -> DataLoader[Batch]:
        if not self._numbers:
            return super().train_dataloader()
        rows = self._numbers["train"]
        sampler = self.sampler(rows, rows.labels)
        return DataLoader(rows, self.batch_size, sampler=sampler, collate_fn=as_it_is, pin_memory=pins(self))

    @override
    def _evaluation(self, part: str) -> DataLoader[Batch]:
        if not self._numbers:
            return super()._evaluation(part)
        batch = max(self.batch_size, EVALUATION_BATCH)
        return DataLoader(self._numbers[part], batch, collate_fn=as_it_is, pin_memory=pins(self))

    def _tables(self) -> list[tuple[str, str]]:
        """What is read: the part, and the argument that names it."""
        tables = [(self.training, self.training_key)]
        return tables if self.validation is None else [*tables, (self.validation, "validation")]

    def _in_two(self, parts: Sequence[LabelledImages], classes: int | None) -> tuple[LabelledImages, LabelledImages]:
        if len(parts) == 2:
            return parts[0], parts[1]
        (whole,) = parts
        if len(whole.labels) < 2:
            raise DataError(f"{KEY}.{self.training_key}: has {len(whole.labels)} samples; at least 2 are needed.")
        if classes is None:
            chosen = torch.from_numpy(held_out(np.arange(len(whole.labels)), self.val_fraction, self.split_seed))
            train_rows, val_rows = torch.nonzero(~chosen).flatten(), torch.nonzero(chosen).flatten()
        else:
            train_rows, val_rows = stratified_split(whole.labels, self.val_fraction, self.split_seed)
        first, second = (LabelledImages(*(of[rows] for of in whole)) for rows in (train_rows, val_rows))
        return first, second


def _is_image(table: Any, column: str) -> bool:
    import datasets

    return isinstance(table.features[column], datasets.Image)


def _is_number(feature: Any) -> bool:
    return getattr(feature, "dtype", "").startswith(("int", "uint", "float", "bool")) and type(feature).__name__ in (
        "Value",
        "ClassLabel",
    )


def _columns(table: Any, features: list[str] | None, label: str) -> list[str]:
    """The columns of the input. DataError where one is missing or of another kind."""
    names = ", ".join(table.column_names)
    if label not in table.features:
        raise DataError(f"{KEY}.label: there is no column {label!r}. Use one of {names}.")
    if features is None:
        columns = [name for name in table.features if _is_image(table, name)]
        if len(columns) != 1:
            columns = [name for name, of in table.features.items() if name != label and _is_number(of)]
        if not columns:
            raise DataError(f"{KEY}.features: no column has images or numbers. The columns are {names}.")
        return columns
    if unknown := [name for name in features if name not in table.features]:
        raise DataError(f"{KEY}.features: there is no column {unknown[0]!r}. Use some of {names}.")
    if not features or label in features:
        raise DataError(f"{KEY}.features: name columns other than the label. The columns are {names}.")
    if len(features) == 1 and _is_image(table, features[0]):
        return features
    if other := [name for name in features if not _is_number(table.features[name])]:
        raise DataError(f"{KEY}.features: {other[0]} has no numbers. Name one column of images, or several of numbers.")
    return features


def _labels(tables: Sequence[Any], label: str) -> tuple[list[Tensor], int | None]:
    """Labels of each table, and how many classes there are; None where they are measures, float32."""
    import datasets

    missing = [table for table in tables if label not in table.features]
    if missing:
        raise DataError(
            f"{KEY}.label: the validation data has no column {label!r}. Use the same columns as in the training data."
        )
    values = [table[label][:] for table in tables]
    if any(value is None for of in values for value in of):
        raise DataError(f"{KEY}.label: {label} is missing in some rows. Remove these rows.")
    feature, kinds = tables[0].features[label], {type(value) for of in values for value in of}
    if kinds == {str}:
        names = {name: number for number, name in enumerate(sorted(set(values[0])))}
        if unknown := [name for of in values for name in of if name not in names]:
            raise DataError(f"{KEY}.validation: {unknown[0]!r} is a label that is not in the training data. Remove it.")
        return [torch.tensor([names[name] for name in of]) for of in values], len(names)
    if kinds <= {int, bool}:
        labels = [torch.tensor(of, dtype=torch.int64) for of in values]
        if any(bool((of < 0).any()) for of in labels):
            raise DataError(f"{KEY}.label: {label} has integers below 0. Number the classes from 0.")
        if isinstance(feature, datasets.ClassLabel):
            theirs = [getattr(table.features[label], "names", None) for table in tables]
            return [_as_in(feature.names, *pair) for pair in zip(theirs, labels, strict=True)], len(feature.names)
        return labels, max((int(of.max()) + 1 for of in labels if len(of)), default=0)
    if kinds <= {int, float} and all(math.isfinite(value) for of in values for value in of):
        return [torch.tensor(of, dtype=torch.float32) for of in values], None
    raise DataError(f"{KEY}.label: {label} has no integers, strings or finite numbers. Name another column.")


def _as_in(names: Sequence[str], theirs: Sequence[str] | None, labels: Tensor) -> Tensor:
    """Labels of a table whose classes are called `theirs`, by the numbers that `names` gives them."""
    if theirs == names:
        return labels
    if theirs is None:
        raise DataError(
            f"{KEY}.validation: the label has no class names. Use the same classes as in the training data."
        )
    if unknown := [theirs[number] for number in sorted(set(labels.tolist())) if theirs[number] not in names]:
        raise DataError(f"{KEY}.validation: {unknown[0]!r} is a label that is not in the training data. Remove it.")
    return torch.tensor([names.index(name) if name in names else 0 for name in theirs])[labels]


def _numbers(table: Any, columns: Sequence[str]) -> Tensor:
    """float32 [rows, columns]."""
    if absent := [name for name in columns if name not in table.features]:
        raise DataError(f"{KEY}.validation: has no column {absent[0]!r}. Use the same columns as in the training data.")
    arrays = []
    for name in columns:
        array = np.array(table[name][:], dtype=np.float32)  # None becomes NaN
        if bad := int((~np.isfinite(array)).sum()):
            raise DataError(
                f"{KEY}.features: {name} has no finite number in {bad} rows. Remove these rows or the column."
            )
        arrays.append(array)
    return torch.from_numpy(np.stack(arrays, 1))


def _pixels(table: Any, column: str, source: TableSource, part: str) -> Tensor:
    """uint8 [images, channels, height, width]: one channel where all are grey, else three. What is opened are bytes of
    the table and files of the source itself, never another path or address that a table names."""
    import datasets
    from PIL import Image, UnidentifiedImageError

    if column not in table.features or not _is_image(table, column):
        raise DataError(f"{KEY}.validation: has no images in {column!r}. Use the same columns as in the training data.")
    arrays: list[np.ndarray] = []
    for row, cell in enumerate(table.cast_column(column, datasets.Image(decode=False))[column]):
        content = None if cell is None else cell["bytes"]
        if content is None and cell is not None and cell["path"] and source.holds(part, cell["path"]):
            content = Path(cell["path"]).read_bytes()
        if content is None:
            raise DataError(
                f"{KEY}.features: row {row} of {column} has no image. Use a table that contains the images."
            )
        try:
            with Image.open(io.BytesIO(content)) as image:
                if image.mode not in (*GREY, *COLOUR):
                    raise DataError(
                        f"{KEY}.features: the image in row {row} has mode {image.mode}, not 8 bits. Convert it."
                    )
                arrays.append(np.asarray(image.convert("L" if image.mode in GREY else "RGB")))
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise DataError(
                f"{KEY}.features: row {row} of {column} is not an image ({error}). Remove the row."
            ) from error
    if sizes := {array.shape[:2] for array in arrays[1:]} - {arrays[0].shape[:2]} if arrays else set():
        (height, width), other = arrays[0].shape[:2], sizes.pop()
        what = f"{width} x {height} pixels and images of {other[1]} x {other[0]}"
        raise DataError(f"{KEY}.features: there are images of {what}. Resize all images to one size.")
    if not arrays:
        raise DataError(f"{KEY}.features: there are no images. Name another file or folder.")
    if any(array.ndim == 3 for array in arrays):
        whole = np.stack([array if array.ndim == 3 else np.repeat(array[..., None], 3, 2) for array in arrays])
        return torch.from_numpy(whole).permute(0, 3, 1, 2).contiguous()
    return torch.from_numpy(np.stack(arrays)).unsqueeze(1)
