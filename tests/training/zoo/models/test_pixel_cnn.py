import math
from pathlib import Path

import pytest
import torch

from scalebook.training.tracking.names import TRAIN_BITS_PER_DIM, TRAIN_LOSS, VAL_BITS_PER_DIM, VAL_LOSS
from scalebook.training.zoo.data import Digits, ImageSpec
from scalebook.training.zoo.models import PixelCNN
from tests.training.zoo.models.fitting import fit


def small(channels: int, layers: int, reach: int) -> PixelCNN:
    torch.manual_seed(0)
    spec = ImageSpec(channels=channels, height=5, width=6, levels=3)
    return PixelCNN(features=12, layers=layers, reach=reach, images=spec).double()


@pytest.mark.parametrize(
    ("channels", "layers", "reach"),
    [(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 2), (1, 2, 2), (1, 1, 3), (3, 1, 1), (3, 2, 1), (3, 1, 2)],
)
def test_an_output_depends_on_all_earlier_pixels_in_reach_and_on_no_other(
    channels: int, layers: int, reach: int
) -> None:
    model, far = small(channels, layers, reach), layers * reach
    images = torch.rand(4, channels, 5, 6, dtype=torch.float64, requires_grad=True)
    logits = model(images)
    weights = torch.randn_like(logits)
    for channel in range(channels):
        for row in range(5):
            for column in range(6):
                one = (logits * weights)[:, :, channel, row, column].sum()
                gradient = torch.autograd.grad(one, images, retain_graph=True)[0].abs().sum(0)
                expected = torch.zeros(channels, 5, 6, dtype=torch.bool)
                left, right = max(0, column - far), column + far + 1
                expected[:, max(0, row - far) : row, left:right] = True
                expected[:, row, left:column] = True
                expected[:channel, row, column] = True
                assert torch.equal(gradient != 0, expected), (channel, row, column)


@pytest.mark.parametrize(("channels", "layers", "reach"), [(1, 3, 1), (3, 2, 1), (1, 1, 2)])
def test_sampling_row_by_row_is_sampling_from_the_whole_model(channels: int, layers: int, reach: int) -> None:
    model = small(channels, layers, reach)
    drawn = model.sample(5, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    expected = torch.zeros(5, channels, 5, 6, dtype=torch.long)
    for row in range(5):
        for column in range(6):
            for channel in range(channels):
                with torch.no_grad():
                    odds = model(expected.double() / 2)[:, :, channel, row, column].float().softmax(1)
                expected[:, channel, row, column] = torch.multinomial(odds, 1, generator=generator)[:, 0]
    assert torch.equal(drawn, expected)
    assert set(drawn.flatten().tolist()) == {0, 1, 2}


def test_sampled_images_are_repeatable_and_between_0_and_1() -> None:
    torch.manual_seed(0)
    model = PixelCNN(images=Digits().images)
    images = model.sample_images(3)
    assert images.shape == (3, 1, 8, 8)
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1
    assert torch.equal(images, model.sample_images(3))


def test_equal_odds_cost_the_logarithm_of_the_levels() -> None:
    data = Digits()
    data.setup("fit")
    model = PixelCNN(images=data.images)
    last = list(model.parameters())[-2:]
    for parameter in last:
        torch.nn.init.zeros_(parameter)
    bits = model.predict_step(next(iter(data.val_dataloader())), 0)
    assert torch.allclose(bits, torch.full_like(bits, math.log2(17)))


@pytest.mark.thorough
def test_learns_the_digits(tmp_path: Path) -> None:
    metrics = fit(
        tmp_path, {"class_path": "scalebook.training.zoo.models.PixelCNN"}, epochs=2, lr=0.004
    ).trainer.callback_metrics
    assert metrics[VAL_BITS_PER_DIM] < 2.35  # 4.09 with equal odds; 2.64 is the entropy of a pixel's marginal
    assert metrics[VAL_BITS_PER_DIM].item() == pytest.approx(metrics[VAL_LOSS].item() / math.log(2), rel=1e-5)
    assert metrics[TRAIN_BITS_PER_DIM].item() == pytest.approx(metrics[TRAIN_LOSS].item() / math.log(2), rel=1e-5)


def test_every_level_is_found_again_from_its_value() -> None:
    spec = ImageSpec(channels=1, height=16, width=16, levels=256)
    model = PixelCNN(features=1, layers=1, images=spec)
    weight, bias = list(model.parameters())[-2:]
    torch.nn.init.zeros_(weight)
    with torch.no_grad():
        bias.copy_(torch.arange(256).float() / 64)
    levels = torch.arange(256).view(1, 1, 16, 16)
    costs = [model.predict_step((torch.full((1, 1, 16, 16), level / 255), levels), 0) for level in range(256)]
    expected = (bias.logsumexp(0) - bias) / math.log(2)
    assert torch.allclose(torch.cat(costs), expected, atol=1e-5)
