"""MNIST, read from its original idx files."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveInt
from typing_extensions import override

from scalebook.training.data.download import RemoteFile
from scalebook.training.data.errors import DataError
from scalebook.training.data.images import ImageSpec, LabelledImages
from scalebook.training.data.module import DownloadedImages, Part

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")


def _remote(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(name, size, sha256, tuple(mirror + name for mirror in MIRRORS))


class MNIST(DownloadedImages):
    """70,000 handwritten digits, 28 x 28 pixels of 256 grey levels: 12 MB, downloaded once.

    LeCun, Bottou, Bengio, Haffner 1998. 54,000 train, 6,000 validate by default, 10,000 test. Other data in files
    of the same names and format (Fashion-MNIST, KMNIST) can be put into a `data_dir` of its own.

    Args:
        data_dir: Folder with the four original files (`train-images-idx3-ubyte.gz`, ...). Default: the user's cache.
        batch_size: Images per batch of one worker.
        limit: Train on this many images only, the first ones. Default: all.
        val_fraction: Share of the 60,000 training images held out for validation.
        split_seed: Seed of the split into training and validation images; independent of the run's seed.
        normalize: Shift and scale the pixels to mean 0 and standard deviation 1. Not for a PixelCNN.
    """

    spec = ImageSpec(channels=1, height=28, width=28, levels=256, classes=10)
    folder_name = "mnist"
    files = (
        _remote(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _remote(
            "train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        _remote(
            "t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        _remote("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
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
        prefix = "train" if part == "train" else "t10k"
        image_file = self.folder / f"{prefix}-images-idx3-ubyte.gz"
        label_file = self.folder / f"{prefix}-labels-idx1-ubyte.gz"
        pixels, labels = read_idx(image_file, 3), read_idx(label_file, 1)
        if (
            pixels.shape != (len(labels), self.spec.height, self.spec.width)
            or labels.max(initial=0) >= self.spec.classes
        ):
            raise DataError(
                f"{image_file} has shape {pixels.shape} and {label_file.name} {len(labels)} labels up to "
                f"{labels.max(initial=0)}; expected as many images of 28 x 28 as labels from 0 to 9."
            )
        return LabelledImages(torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


def read_idx(path: Path, dimensions: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A gzipped idx file of unsigned bytes: 0, 0, 8, the number of dimensions, their sizes (big-endian), the data."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}). Delete it and run again.") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path} is not an idx file of bytes in {dimensions} dimensions. Delete it and run again.")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=dimensions, offset=4))
    if len(content) != header + math.prod(shape):
        raise DataError(f"{path} has {len(content) - header} bytes of data, not {shape}. Delete it and run again.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()
