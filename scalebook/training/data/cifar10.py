"""CIFAR-10, read from its original binary archive."""

import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveInt
from typing_extensions import override

from scalebook.training.data.download import RemoteFile
from scalebook.training.data.errors import DataError
from scalebook.training.data.images import ImageSpec, LabelledImages
from scalebook.training.data.module import DownloadedImages, Part

ARCHIVE = "cifar-10-binary.tar.gz"
MIRRORS = ("https://www.cs.toronto.edu/~kriz/", "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/")
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
RECORD = 1 + 3 * 32 * 32  # bytes: the label, then the red, green and blue planes, row by row


class CIFAR10(DownloadedImages):
    """60,000 colour photographs of ten kinds of things, 32 x 32 pixels: 170 MB, downloaded once.

    Krizhevsky 2009. 45,000 train, 5,000 validate by default, 10,000 test. Held as bytes: 150 MB for each worker.

    Args:
        data_dir: Folder with the original `cifar-10-binary.tar.gz`. Default: the user's cache.
        batch_size: Images per batch of one worker.
        limit: Train on this many images only, the first ones. Default: all.
        val_fraction: Share of the 50,000 training images held out for validation.
        split_seed: Seed of the split into training and validation images; independent of the run's seed.
        normalize: Shift and scale each channel to mean 0 and standard deviation 1. Not for a PixelCNN.
    """

    spec = ImageSpec(channels=3, height=32, width=32, levels=256, classes=10)
    folder_name = "cifar10"
    files = (
        RemoteFile(
            ARCHIVE,
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            tuple(mirror + ARCHIVE for mirror in MIRRORS),
        ),
    )

    def __init__(
        self,
        data_dir: str | None = None,
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.1,
        split_seed: NonNegativeInt = 0,
        normalize: bool = False,
    ) -> None:
        super().__init__(data_dir, batch_size, limit, val_fraction, split_seed, normalize)

    @override
    def read(self, part: Part) -> LabelledImages:
        names = TRAIN_FILES if part == "train" else ("test_batch.bin",)
        content = b"".join(read_members(self.folder / ARCHIVE, names))
        records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        labels = records[:, 0].astype(np.int64)
        if labels.max(initial=0) >= self.spec.classes:
            raise DataError(f"{self.folder / ARCHIVE} has label {labels.max()}, not 0 to 9. Delete it and run again.")
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).copy()
        return LabelledImages(torch.from_numpy(pixels), torch.from_numpy(labels))


def read_members(archive: Path, names: tuple[str, ...]) -> list[bytes]:
    """The records of the archive's files called `names`, in that order, whatever their folder; read as a stream."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name in names and (stream := tar.extractfile(member)):
                    contents[name] = stream.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}). Delete it and run again.") from error
    bad = [name for name in names if not contents.get(name) or len(contents[name]) % RECORD]
    if bad:
        raise DataError(f"{archive} lacks whole records in {', '.join(bad)}. Delete it and run again.")
    return [contents[name] for name in names]
