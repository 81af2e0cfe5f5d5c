"""The models that ship, over several workers: as in one process, with their samples and translations."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.callbacks.job_files import Pictures
from scalebook.training.lightning import ModelParallel
from scalebook.training.tracking import names
from scalebook.training.zoo.data.module import ImageSpec
from scalebook.training.zoo.data.subwords import learned
from scalebook.training.zoo.models import ConvClassifier, MLPClassifier, PixelCNN, Translator
from tests.training.lightning.async_ps.small import trainer, weights
from tests.training.lightning.model_parallel.split_model import adam, momentum, strategy
from tests.training.zoo.data.corpora import sentences

pytestmark = pytest.mark.long

SPEC = ImageSpec(1, 4, 4, levels=3, classes=6)
SAMPLES = 16


class _Mlp(MLPClassifier):
    def configure_optimizers(self) -> Any:
        return adam(self)


class _Pixels(PixelCNN):
    def configure_optimizers(self) -> Any:
        return adam(self)


class _Translator(Translator):
    def configure_optimizers(self) -> Any:
        return momentum(self)  # of keys' biases the gradient is rounding alone, which Adam would enlarge


def fitted(
    folder: Path, model: LightningModule, samples: Any, tensor: int, shard: int, stages: int = 1, **settings: Any
) -> Any:
    """After 8 updates of all samples: the weights, and the metrics."""
    split = strategy(tensor, shard) if stages == 1 else ModelParallel(stages=stages)
    made = trainer(
        folder, split, tensor * shard * stages, max_epochs=8, check_val_every_n_epoch=8,
        num_sanity_val_steps=0, gradient_clip_val=0.5, **settings,
    )  # fmt: skip
    made.fit(model, DataLoader(samples, SAMPLES // shard, shuffle=True), DataLoader(samples, 6))
    logged = {name: float(value) for name, value in made.callback_metrics.items() if name.startswith("val")}
    return weights(model), logged


def images() -> TensorDataset:
    drawn = torch.Generator().manual_seed(3)
    levels = torch.randint(0, 3, (SAMPLES, 1, 4, 4), generator=drawn)
    return TensorDataset(levels / 2, torch.randint(0, 6, (SAMPLES,), generator=drawn))


def same(split: Any, one: Any) -> None:
    torch.testing.assert_close(split[0], one[0], rtol=0, atol=2e-6)
    assert split[1] == pytest.approx(one[1], abs=1e-5)
    assert one[1]


@pytest.mark.parametrize(("tensor", "shard", "layers"), [(2, 1, 3), (2, 2, 2), (1, 2, 2)])
def test_an_mlp(tensor: int, shard: int, layers: int, tmp_path: Path) -> None:
    def made() -> LightningModule:
        torch.manual_seed(7)
        return _Mlp(hidden=12, layers=layers, dropout=0.2 if shard == 1 else 0.0, images=SPEC)

    same(fitted(tmp_path, made(), images(), tensor, shard), fitted(tmp_path, made(), images(), 1, 1))


@pytest.mark.parametrize(
    ("kind", "settings"), [(MLPClassifier, {"layers": 3, "hidden": 12}), (ConvClassifier, {"width": 4})]
)
def test_stages_of_classifiers(kind: Any, settings: Any, tmp_path: Path) -> None:
    class Fast(kind):  # type: ignore[misc]  # a parameter
        def configure_optimizers(self) -> Any:
            return momentum(self)  # before a normalisation the gradient of a bias is rounding alone

    def made(stages: int) -> Any:
        torch.manual_seed(7)
        return fitted(tmp_path, Fast(**settings, images=SPEC), images(), 1, 1, stages)

    same(made(2), made(1))


@pytest.mark.parametrize(("shard", "stages"), [(2, 1), (1, 2)])
def test_a_pixel_cnn_and_its_picture(shard: int, stages: int, tmp_path: Path) -> None:
    def made(shard: int, stages: int) -> Any:
        torch.manual_seed(7)
        folder = tmp_path / str(shard * stages)
        folder.mkdir()
        model = _Pixels(features=6, layers=2, reach=1, images=SPEC)
        return fitted(folder, model, images(), 1, shard, stages, callbacks=[Pictures(folder)])

    same(made(shard, stages), made(1, 1))
    pictures = [(tmp_path / workers / names.SAMPLES_PICTURE).read_bytes() for workers in "12"]
    assert pictures[0] == pictures[1]


@pytest.mark.thorough
@pytest.mark.parametrize(("tensor", "shard"), [(2, 1), (1, 2), (2, 2)])
def test_a_translator_and_its_translations(tensor: int, shard: int, tmp_path: Path) -> None:
    """With dropout where the workers share a batch: they draw one process's masks."""

    def made() -> Translator:
        torch.manual_seed(7)
        model = _Translator(width=16, layers=2, heads=2, dropout=0.2 if shard == 1 else 0.0, translated=4)
        model.build(learned([text for both in sentences() for text in both], 120))
        return model

    drawn = torch.Generator().manual_seed(3)
    rows: list[Tensor] = [torch.randint(4, 120, (SAMPLES, length), generator=drawn) for length in (6, 5)]
    same(
        fitted(tmp_path, made(), TensorDataset(*rows), tensor, shard),
        fitted(tmp_path, made(), TensorDataset(*rows), 1, 1),
    )
