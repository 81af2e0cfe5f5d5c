from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.base.errors import ConfigError
from scalebook.training.zoo.data import Digits, ImageSpec
from scalebook.training.zoo.models import ConvClassifier, ImageModel, MLPClassifier, PixelCNN
from tests.training.zoo.models.fitting import fit

MODELS: list[type[ImageModel]] = [ConvClassifier, MLPClassifier, PixelCNN]
SMALL: dict[type[ImageModel], dict[str, Any]] = {
    ConvClassifier: {"width": 4, "dropout": 0.1},
    MLPClassifier: {"hidden": 8, "activation": "tanh"},
    PixelCNN: {"features": 2, "layers": 2},
}


@pytest.mark.parametrize("model_class", MODELS)
def test_model_and_data_alone_make_a_config_and_the_checkpoint_needs_no_data(
    model_class: type[ImageModel], tmp_path: Path
) -> None:
    config = {"class_path": f"scalebook.training.zoo.models.{model_class.__name__}", "init_args": SMALL[model_class]}
    cli = fit(tmp_path, config, trainer={"limit_train_batches": 2})
    assert set(model_class.metrics) <= set(cli.trainer.callback_metrics)
    checkpoint = tmp_path / "one.ckpt"
    cli.trainer.save_checkpoint(checkpoint)
    loaded = model_class.load_from_checkpoint(checkpoint)
    assert loaded.images == Digits().images
    for name, value in SMALL[model_class].items():
        assert getattr(loaded, name) == value
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(loaded.eval()(images), cli.model.eval()(images))


@pytest.mark.parametrize("model_class", MODELS)
def test_a_fit_goes_on_from_a_checkpoint(model_class: type[ImageModel], tmp_path: Path) -> None:
    config = {"class_path": f"scalebook.training.zoo.models.{model_class.__name__}", "init_args": SMALL[model_class]}
    few = {"limit_train_batches": 2}
    checkpoint = tmp_path / "one.ckpt"
    fit(tmp_path, config, trainer=few).trainer.save_checkpoint(checkpoint)
    assert fit(tmp_path, config, epochs=3, trainer=few, ckpt_path=checkpoint).trainer.global_step == 6


@pytest.mark.parametrize("model_class", MODELS)
def test_given_images_a_model_works_without_a_trainer(model_class: type[ImageModel], tmp_path: Path) -> None:
    images = ImageSpec(channels=3, height=12, width=10, levels=4, classes=5)
    model = model_class(images=images, **SMALL[model_class])
    out = model(torch.rand(2, 3, 12, 10))
    assert out.shape == ((2, 4, 3, 12, 10) if model_class is PixelCNN else (2, 5))


@pytest.mark.parametrize("model_class", MODELS)
def test_all_parameters_get_a_gradient(model_class: type[ImageModel]) -> None:
    """DDP would wait for a parameter without one."""
    data = Digits()
    data.setup("fit")
    model = model_class(images=data.images)
    torch.autograd.backward(model(next(iter(data.train_dataloader()))[0]).square().sum())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not list(model.buffers())  # DDP would send them to all workers before every step


def test_data_that_tells_no_geometry_is_refused_with_a_remedy() -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    loader = DataLoader(TensorDataset(torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)))
    with pytest.raises(
        ConfigError, match=r"model.init_args.images: is missing, and MLPClassifier cannot read .* Set channels"
    ):
        trainer.validate(MLPClassifier(), loader)


def test_too_many_blocks_are_refused_with_the_most_that_fit() -> None:
    spec = Digits().images
    assert ConvClassifier(blocks=3, images=spec)(torch.rand(1, 1, 8, 8)).shape == (1, 10)
    with pytest.raises(ConfigError, match=r"blocks: 4 blocks are too many for images of 8 x 8 pixels. Use at most 3."):
        ConvClassifier(blocks=4, images=spec)


def test_a_pixel_cnn_refuses_normalized_pixels() -> None:
    with pytest.raises(
        ConfigError, match=r"data.init_args.normalize: is true, but a PixelCNN predicts levels.* Set it to false."
    ):
        PixelCNN(images=Digits(normalize=True).images)
