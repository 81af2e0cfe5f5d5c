"""The layers of a gated PixelCNN: convolutions that never see a later pixel, in two stacks.

Source: van den Oord, Kalchbrenner, Vinyals, Espeholt, Graves, Kavukcuoglu 2016, "Conditional Image Generation with
PixelCNN Decoders", section 2.1-2.2 and figures 1-2. Pixels are ordered row by row, the channels within a pixel one
after the other.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn
from typing_extensions import override

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
