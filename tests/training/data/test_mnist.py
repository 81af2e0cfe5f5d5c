import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from scalebook.training.data import MNIST, DataError
from scalebook.training.data.mnist import read_idx


def write_idx(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_mnist(folder: Path, train: int = 50, test: int = 20) -> None:
    """Files of the original format with random pixels; image i has label i % 10 and its first pixel is i."""
    draw = np.random.RandomState(0)
    for prefix, count in (("train", train), ("t10k", test)):
        pixels = draw.randint(0, 256, (count, 28, 28)).astype(np.uint8)
        pixels[:, 0, 0] = np.arange(count)
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))


def test_reads_training_validation_and_test_images(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    data = MNIST(data_dir=str(tmp_path), batch_size=8, val_fraction=0.2)
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    sizes = [sum(len(labels) for _, labels in part()) for part in (data.train_dataloader, data.val_dataloader)]
    assert sizes == [40, 10]
    images, labels = next(iter(data.test_dataloader()))
    assert images.shape == (20, 1, 28, 28)
    assert torch.equal(labels, torch.arange(20) % 10)
    assert torch.equal(images[:, 0, 0, 0], torch.arange(20) / 255)


def test_pixels_stay_with_their_labels(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    data = MNIST(data_dir=str(tmp_path), val_fraction=0.2)
    data.setup("fit")
    for images, labels in (*data.train_dataloader(), *data.val_dataloader()):
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long() % 10, labels)


def test_the_test_part_is_normalized_by_the_training_part(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    data = MNIST(data_dir=str(tmp_path), normalize=True, val_fraction=0.2)
    data.setup("test")
    train = torch.cat([images for images, _ in data.train_dataloader()])
    assert train.mean().item() == pytest.approx(0, abs=1e-5)
    raw = read_idx(tmp_path / "t10k-images-idx3-ubyte.gz", 3)
    images, _ = next(iter(data.test_dataloader()))
    slope, offset = np.polyfit(raw.ravel(), images.numpy().ravel(), 1)
    assert np.allclose(raw * slope + offset, images[:, 0].numpy(), atol=1e-4)
    assert images.mean().item() != pytest.approx(0, abs=1e-6)


def test_missing_files_are_named_with_their_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=f"MNIST is not complete. Put t10k-labels-idx1-ubyte.gz in {tmp_path}, or"):
        MNIST(data_dir=str(tmp_path)).setup("fit")


def test_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    write_idx(path, np.zeros((3, 4, 4), np.uint8))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(DataError, match=r"is damaged .* Delete it"):
        read_idx(path, 3)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"is damaged .* Delete it"):
        read_idx(path, 3)
    path.write_bytes(gzip.compress(gzip.decompress(whole)[:-5]))
    with pytest.raises(DataError, match=r"has 43 bytes of data, not \(3, 4, 4\)"):
        read_idx(path, 3)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="not an idx file of bytes in 1 dimensions"):
        read_idx(path, 1)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((50, 32, 32), np.uint8))
    with pytest.raises(DataError, match=r"shape \(50, 32, 32\) .* expected as many images of 28 x 28"):
        MNIST(data_dir=str(tmp_path)).setup("fit")
