"""A gated PixelCNN: the likelihood of an image, pixel by pixel. Its convolutions never see a later pixel, in two
stacks.

Source: van den Oord, Kalchbrenner, Vinyals, Espeholt, Graves, Kavukcuoglu 2016, "Conditional Image Generation with
PixelCNN Decoders", section 2.1-2.2 and figures 1-2. Pixels are ordered row by row, the channels within a pixel one
after the other.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jsonargparse.typing import PositiveInt
from torch import nn
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.tracking import names
from scalebook.training.zoo.data.module import Batch, ImageSpec
from scalebook.training.zoo.models.image_model import ImageModel

MaskType = Literal["A", "B"]
Features = tuple[torch.Tensor, torch.Tensor]
"""Of the vertical and of the horizontal stack, each [n, features, rows, columns]."""


class MaskedRow(nn.Conv2d):
    """A convolution along a row over `reach` pixels to the left and the pixel itself, there only over earlier channels.

    Feature maps belong to the image's channels, in equal and contiguous shares (repeated `gates` times in the output).
    At the pixel itself, mask A lets a channel's features see those of earlier channels only, mask B also its own.
    """

    def __init__(self, inputs: int, outputs: int, reach: int, mask: MaskType, channels: int, gates: int = 1) -> None:
        super().__init__(inputs, outputs, (1, reach + 1))
        self.reach = reach
        seen = torch.arange(inputs) * channels // inputs
        sees = (torch.arange(outputs // gates) * channels // (outputs // gates)).repeat(gates)
        own = seen < sees.unsqueeze(1) if mask == "A" else seen <= sees.unsqueeze(1)
        whole = torch.ones_like(self.weight)
        whole[:, :, 0, -1] = own.float()
        # Not a buffer: DDP would send it to all workers before every step.
        self.mask = None if bool(own.all()) else whole

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if self.mask is not None:
            self.mask = self.mask.to(weight)
            weight = weight * self.mask
        return F.conv2d(F.pad(input, (self.reach, 0)) if self.reach else input, weight, self.bias)


class GatedLayer(nn.Module):
    """One layer of both stacks. No blind spot: the vertical stack sees the rows above, in full reach to both sides.

    Row r of the vertical features depends on rows before r only: the first layer looks at the `reach` rows above, the
    further ones also at their own row of features. The horizontal stack has a residual connection except in the first
    layer, whose mask A must not let the pixel itself through.
    """

    def __init__(self, inputs: int, features: int, reach: int, channels: int, first: bool) -> None:
        super().__init__()
        self.reach, self.first = reach, first
        rows = reach if first else reach + 1
        self.vertical = nn.Conv2d(inputs, 2 * features, (rows, 2 * reach + 1), padding=(0, reach))
        self.down_to_right = nn.Conv2d(2 * features, 2 * features, 1)
        self.horizontal = MaskedRow(inputs, 2 * features, reach, "A" if first else "B", channels, gates=2)
        self.out = MaskedRow(features, features, 0, "B", channels)
        for convolution in (self.vertical, self.down_to_right, self.horizontal, self.out):
            # Torch's default is 3 times less variance; the gates halve the signal as it is.
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="linear")

    @override
    def forward(self, features: Features) -> Features:
        """The next features of both stacks."""
        down, to_right = self.down(features[0])
        return down, self.right(features[1], to_right)

    def down(self, above: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, inputs, rows, columns] -> the next vertical features, and what the horizontal stack takes from them."""
        above = F.pad(above, (0, 0, self.reach, -1 if self.first else 0))
        before_gate = self.vertical(above)
        return gate(before_gate), self.down_to_right(before_gate)

    def right(self, left: torch.Tensor, from_above: torch.Tensor) -> torch.Tensor:
        """[n, inputs, rows, columns], [n, 2 * features, rows, columns] -> the next horizontal features."""
        made: torch.Tensor = self.out(gate(self.horizontal(left) + from_above))
        return made if self.first else made + left


def gate(features: torch.Tensor) -> torch.Tensor:
    """tanh of the first half of the features times sigmoid of the second, equation 2 of the paper."""
    value, control = features.chunk(2, 1)
    return torch.tanh(value) * torch.sigmoid(control)


class PixelCNN(ImageModel):
    """Gated PixelCNN: predicts each pixel from the pixels above and to the left, and can generate images.

    Each channel of a pixel is a softmax over its levels, given all earlier pixels and the earlier channels of the same
    pixel (van den Oord et al. 2016, "Conditional Image Generation with PixelCNN Decoders"). The loss is the negative
    log-likelihood in nats per pixel and channel. Bits per dimension are the same loss in bits.

    Args:
        features: Number of feature maps in each stack, for each channel of the image.
        layers: Number of gated layers, including the first.
        reach: How many pixels a layer sees in each direction. 1 is a kernel of 3 x 3, 2 a kernel of 5 x 5. All layers
            together see layers * reach pixels in each direction.
        images: Shape of the images. Null: the shape of the data set's images.
    """

    metrics = (names.VAL_BITS_PER_DIM, names.VAL_LOSS)

    def __init__(
        self,
        features: PositiveInt = 16,
        layers: PositiveInt = 3,
        reach: PositiveInt = 2,
        images: ImageSpec | None = None,
    ) -> None:
        super().__init__(images)
        self.save_hyperparameters(ignore=["images"])
        self.features, self.layers, self.reach = features, layers, reach
        self.configure_model()

    @override
    def build(self, images: ImageSpec) -> None:
        if images.normalized:
            raise ConfigError(
                "data.init_args.normalize",
                "is true, but a PixelCNN predicts levels, which normalised pixels do not have",
                "Set it to false.",
            )
        channels, width = images.channels, self.features * images.channels
        first = GatedLayer(channels, width, self.reach, channels, first=True)
        rest = (GatedLayer(width, width, self.reach, channels, first=False) for _ in range(self.layers - 1))
        self.gated = nn.ModuleList([first, *rest])
        self.head = nn.Sequential(
            nn.ReLU(),
            MaskedRow(width, width, 0, "B", channels),
            nn.ReLU(),
            MaskedRow(width, channels * images.levels, 0, "B", channels),
        )

    def shard_units(self) -> dict[str, tuple[str, ...]]:
        """A layer at a time, for `ModelParallel`; the head is gathered with what is called of the model."""
        return {"": ("sample",), **{f"gated.{place}": ("down", "right") for place in range(self.layers)}}

    def stages(self) -> list[nn.Module]:
        """Both stacks advance together, a layer at a time, for `ModelParallel`: two tensors pass between stages."""
        return [_BothPixels(), *self.gated, _Logits(self.head, self._spec)]

    @override
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [n, channels, height, width] in 0..1 -> logits [n, levels, channels, height, width]."""
        pixels = 2 * images - 1
        return self._across(pixels, self._above(pixels))

    def _above(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """The vertical stack: what each layer's row r takes from the rows before r."""
        taken, features = [], pixels
        for layer in self.gated:
            assert isinstance(layer, GatedLayer)
            features, to_right = layer.down(features)
            taken.append(to_right)
        return taken

    def _across(self, pixels: torch.Tensor, above: list[torch.Tensor]) -> torch.Tensor:
        """The horizontal stack and the head; rows do not mix here, so it also takes a single row of each."""
        features = pixels
        for layer, taken in zip(self.gated, above, strict=True):
            assert isinstance(layer, GatedLayer)
            features = layer.right(features, taken)
        return by_channel(self.head(features), pixels.shape[1])

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        loss = self._loss(batch[0]).mean()
        self.log(names.TRAIN_LOSS, loss, batch_size=len(batch[0]))
        self.log(names.TRAIN_BITS_PER_DIM, loss.detach() / math.log(2), batch_size=len(batch[0]))
        return loss

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss = self._loss(batch[0]).mean()
        bits = loss / math.log(2)
        self.log_dict({names.VAL_LOSS: loss, names.VAL_BITS_PER_DIM: bits}, batch_size=len(batch[0]), sync_dist=True)

    @override
    def test_step(self, batch: Batch, batch_idx: int) -> None:
        loss = self._loss(batch[0]).mean()
        bits = loss / math.log(2)
        self.log_dict({"test/loss": loss, "test/bits_per_dim": bits}, batch_size=len(batch[0]), sync_dist=True)

    @override
    def predict_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Bits per dimension of each image [batch]."""
        return self._loss(batch[0]).flatten(1).mean(1) / math.log(2)

    def _loss(self, images: torch.Tensor) -> torch.Tensor:
        """Nats [n, channels, height, width]."""
        levels = (images * (self._spec.levels - 1)).round().long()
        return F.cross_entropy(self(images), levels, reduction="none")

    @property
    def _spec(self) -> ImageSpec:
        assert self.images is not None, "the model is not built. Pass `images`, or use a trainer with data"
        return self.images

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draw new images: levels, int64 [count, channels, height, width] on the model's device.

        The vertical stack is computed once a row, the horizontal stack once a channel of each pixel, for one row only.
        `generator`, on the model's device, makes the draw repeatable; without it the global random numbers are used.
        """
        spec = self._spec
        drawn = torch.zeros(count, spec.channels, spec.height, spec.width, dtype=torch.long, device=self.device)
        scale = 2 / (spec.levels - 1)
        for row in range(spec.height):
            seen = drawn[:, :, max(0, row - self.layers * self.reach) : row + 1]  # what the last row depends on
            above = [taken[:, :, -1:] for taken in self._above(seen.to(self.dtype) * scale - 1)]
            for column in range(spec.width):
                for channel in range(spec.channels):
                    pixels = drawn[:, :, row : row + 1].to(self.dtype) * scale - 1
                    odds = self._across(pixels, above)[:, :, channel, 0, column].float().softmax(1)
                    drawn[:, channel, row, column] = torch.multinomial(odds, 1, generator=generator)[:, 0]
        return drawn

    def sample_images(self, count: int) -> torch.Tensor:
        """Draw new images to look at, float32 [count, channels, height, width] in 0..1; repeatable."""
        drawn = self.sample(count, torch.Generator(self.device).manual_seed(0))
        return drawn / (self._spec.levels - 1)


class _BothPixels(nn.Module):
    """What the two stacks begin with: images [n, channels, height, width] in 0..1, twice, in -1..1."""

    @override
    def forward(self, images: torch.Tensor) -> Features:
        pixels = 2 * images - 1
        return pixels, pixels


class _Logits(nn.Module):
    """The head after the last layer of both stacks: logits [n, levels, channels, height, width]."""

    def __init__(self, head: nn.Module, images: ImageSpec) -> None:
        super().__init__()
        self.head, self.channels = head, images.channels

    @override
    def forward(self, features: Features) -> torch.Tensor:
        return by_channel(self.head(features[1]), self.channels)


def by_channel(logits: torch.Tensor, channels: int) -> torch.Tensor:
    """[n, channels * levels, rows, columns] -> [n, levels, channels, rows, columns]."""
    return logits.view(len(logits), channels, -1, *logits.shape[2:]).transpose(1, 2)
