import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from scalebook.training.data import CIFAR10, DataError
from scalebook.training.data.cifar10 import ARCHIVE, TRAIN_FILES

MEMBERS = (*TRAIN_FILES, "test_batch.bin")


def write_cifar10(folder: Path, members: tuple[str, ...] = MEMBERS, images: int = 10, cut: int = 0) -> None:
    """An archive of the original format: image i of a file has label i, red pixels i, green 100 + i, blue 200 + i."""
    labels = np.arange(images, dtype=np.uint8)[:, None]
    planes = [np.repeat(labels + base, 1024, axis=1) for base in (0, 100, 200)]
    content = np.concatenate([labels, *planes], axis=1).astype(np.uint8).tobytes()
    with tarfile.open(folder / ARCHIVE, "w:gz") as tar:
        for name in ("batches.meta.txt", *members):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content) - cut
            tar.addfile(info, io.BytesIO(content[: len(content) - cut]))


def test_reads_colours_and_labels(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = CIFAR10(data_dir=str(tmp_path), batch_size=16, val_fraction=0.2)
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    sizes = [sum(len(labels) for _, labels in part()) for part in (data.train_dataloader, data.val_dataloader)]
    assert sizes == [40, 10]
    images, labels = next(iter(data.train_dataloader()))
    assert images.shape == (16, 3, 32, 32)
    expected = (labels[:, None] + torch.tensor([0, 100, 200])) / 255
    assert torch.equal(images[:, :, 31, 31], expected)
    assert torch.equal(images.amin((2, 3)), images.amax((2, 3)))
    assert torch.equal(torch.cat([labels for _, labels in data.test_dataloader()]), torch.arange(10))


def test_each_channel_is_normalized_by_itself(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = CIFAR10(data_dir=str(tmp_path), normalize=True)
    data.setup("fit")
    images = torch.cat([images for images, _ in data.train_dataloader()])
    assert torch.allclose(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(images.std((0, 2, 3)), torch.ones(3), atol=1e-3)


def test_a_missing_archive_is_named_with_its_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"CIFAR10 is not complete. Put {ARCHIVE} in {tmp_path}, or"):
        CIFAR10(data_dir=str(tmp_path)).setup("fit")


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    whole = (tmp_path / ARCHIVE).read_bytes()
    (tmp_path / ARCHIVE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"is damaged .* Delete it"):
        CIFAR10(data_dir=str(tmp_path)).setup("fit")
    write_cifar10(tmp_path, members=TRAIN_FILES[:3])
    with pytest.raises(DataError, match=r"lacks whole records in data_batch_4.bin, data_batch_5.bin. Delete it"):
        CIFAR10(data_dir=str(tmp_path)).setup("fit")
    write_cifar10(tmp_path, cut=1)
    with pytest.raises(DataError, match=r"lacks whole records in data_batch_1.bin"):
        CIFAR10(data_dir=str(tmp_path)).setup("fit")


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, images=11)
    with pytest.raises(DataError, match="has label 10, not 0 to 9"):
        CIFAR10(data_dir=str(tmp_path)).setup("fit")
