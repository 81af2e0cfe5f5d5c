import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from scalebook.training.zoo.data import DataError, Digits
from scalebook.training.zoo.data import digits as digits_module
from scalebook.training.zoo.data.module import ImageBatches


def ready(data: Digits) -> Digits:
    data.setup("fit")
    return data


def test_reads_what_scikit_learn_reads() -> None:
    expected = load_digits()
    pixels, labels = Digits().read("train")
    assert pixels.dtype == torch.uint8
    assert np.array_equal(pixels.flatten(1).numpy(), expected.data)
    assert np.array_equal(labels.numpy(), expected.target)


def test_a_batch_is_floats_from_0_to_1_and_labels() -> None:
    images, labels = next(iter(ready(Digits(batch_size=32)).train_dataloader()))
    assert (images.shape, images.dtype) == ((32, 1, 8, 8), torch.float32)
    assert (labels.shape, labels.dtype) == ((32,), torch.int64)
    assert torch.equal((images * 16).round(), images * 16)
    assert (images.min(), images.max()) == (0, 1)


def test_training_and_validation_share_no_image_and_hold_all() -> None:
    data = ready(Digits())
    train = torch.cat([images for images, _ in data.train_dataloader()])
    val = torch.cat([images for images, _ in data.val_dataloader()])
    assert (len(train), len(val)) == (1437, 360)
    whole = Digits().read("train").pixels.float() / 16
    both = torch.cat([train, val]).flatten(1)
    assert torch.equal(both[lexical(both)], whole.flatten(1)[lexical(whole.flatten(1))])


def lexical(rows: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.lexsort(rows.numpy().T))


def test_another_split_seed_holds_out_other_images() -> None:
    first, again, other = (ready(Digits(split_seed=seed)) for seed in (0, 0, 1))
    images = [next(iter(data.val_dataloader()))[0] for data in (first, again, other)]
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


def test_normalized_training_pixels_have_mean_0_and_deviation_1() -> None:
    data = ready(Digits(normalize=True))
    images = torch.cat([images for images, _ in data.train_dataloader()])
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std().item() == pytest.approx(1, abs=1e-4)


def test_limit_takes_the_first_training_images_and_leaves_validation_alone() -> None:
    data = ready(Digits(limit=100))
    assert len(data.train_dataloader().dataset) == 100  # type: ignore[arg-type]  # torch's Dataset promises no len
    assert len(data.val_dataloader().dataset) == 360  # type: ignore[arg-type]  # the same
    limited, whole = data.train_dataloader().dataset, ready(Digits()).train_dataloader().dataset
    assert isinstance(limited, ImageBatches)
    assert isinstance(whole, ImageBatches)
    assert torch.equal(limited.pixels, whole.pixels[:100])


def test_a_limit_beyond_the_data_warns() -> None:
    with pytest.warns(UserWarning, match="limit is 5000, but there are only 1437 training samples"):
        ready(Digits(limit=5000))


def test_a_missing_file_is_a_data_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(digits_module, "digits_file", lambda: f"{tmp_path}/digits.csv.gz")
    with pytest.raises(DataError, match=r"Cannot read the digits in .*Reinstall scikit-learn"):
        Digits().setup("fit")
