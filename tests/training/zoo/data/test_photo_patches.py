from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images

from scalebook.training.base.errors import ConfigError
from scalebook.training.zoo.data import DataError, PhotoPatches
from scalebook.training.zoo.data import photo_patches as module
from scalebook.training.zoo.data.photo_patches import PHOTOGRAPHS, grey_levels, patches, photographs_folder


def ready(data: PhotoPatches) -> PhotoPatches:
    data.setup("fit")
    return data


def test_the_levels_are_sixteenths_of_the_photographs_of_scikit_learn() -> None:
    for name, colours in zip(PHOTOGRAPHS, load_sample_images().images, strict=True):
        levels = grey_levels(photographs_folder() / name)
        luma = colours @ np.array([0.299, 0.587, 0.114])  # ITU-R 601
        assert (levels.shape, levels.dtype) == ((427, 640), torch.uint8)
        assert levels.max() == (15 if name == "china.jpg" else 14)
        assert np.abs(levels.numpy() - luma / 16 + 0.5).max() < 0.6


def test_a_batch_is_floats_from_0_to_1_and_which_photograph() -> None:
    images, labels = next(iter(ready(PhotoPatches(batch_size=64)).train_dataloader()))
    assert (images.shape, images.dtype) == ((64, 1, 16, 16), torch.float32)
    levels = images * 15
    assert torch.allclose(levels.round(), levels, atol=1e-5)
    assert (levels.min(), levels.max()) == (0, 15)
    assert set(labels.tolist()) == {0, 1}


def test_no_pixel_both_trains_and_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column of a photograph is told apart by its level."""
    columns = torch.arange(640, dtype=torch.int64).expand(427, 640)
    monkeypatch.setattr(module, "grey_levels", lambda path: columns)
    train, val = PhotoPatches().split()
    assert (len(train.labels), len(val.labels)) == (2 * 52 * 59, 2 * 26 * 10)
    assert train.pixels.max() < 480 <= val.pixels.min()
    assert (int(train.pixels.min()), int(val.pixels.max())) == (0, 639)


def test_patches_are_read_row_by_row() -> None:
    levels = torch.arange(24 * 32).reshape(24, 32)
    made = patches(levels, 8)
    assert made.shape == (2 * 3, 1, 16, 16)
    assert made[:, 0, 0, 0].tolist() == [0, 8, 16, 8 * 32, 8 * 32 + 8, 8 * 32 + 16]
    assert torch.equal(made[4, 0], levels[8:24, 8:24])


def test_the_split_is_the_same_each_time_and_a_limit_draws_from_both() -> None:
    first, again, limited = PhotoPatches().split(), PhotoPatches().split(), ready(PhotoPatches(limit=100))
    for mine, other in zip(first, again, strict=True):
        assert torch.equal(mine.pixels, other.pixels)
        assert torch.equal(mine.labels, other.labels)
    images = torch.cat([images for images, _ in limited.train_dataloader()])
    labels = torch.cat([labels for _, labels in limited.train_dataloader()])
    assert len(images) == 100
    assert 30 < int(labels.sum()) < 70


def test_what_cannot_be_read_or_split_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.init_args.val_fraction: is 0.01, which makes .*0.03 to 0.97"):
        ready(PhotoPatches(val_fraction=0.01))
    monkeypatch.setattr(module, "photographs_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=r"Cannot read the photograph .*china.jpg.*Reinstall scikit-learn"):
        ready(PhotoPatches())
