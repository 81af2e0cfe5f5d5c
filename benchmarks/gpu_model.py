"""ResNet-50 in plain torch: 25.6 M parameters (He et al. 2016, table 1; the stride in the 3 x 3 convolution)."""

from typing import Final

from torch import Tensor
from torch.nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential

STAGES: Final = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first
WIDER: Final = 4


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> Sequential:
    """A convolution and its normalisation; keeps height and width, divided by the stride."""
    layer = Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return Sequential(layer, BatchNorm2d(outputs))


class Bottleneck(Module):
    """[n, inputs, h, w] to [n, 4 width, h / stride, w / stride]."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = WIDER * width
        self.body = Sequential(
            convolution(inputs, width, 1), ReLU(inplace=True), convolution(width, width, 3, stride), ReLU(inplace=True),
            convolution(width, outputs, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = Sequential() if same else convolution(inputs, outputs, 1, stride)
        self.relu = ReLU(inplace=True)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(inputs) + self.shortcut(inputs))
        return out


def resnet50(classes: int = 1000) -> Sequential:
    """[n, 3, h, w] to [n, classes]."""
    layers: list[Module] = [convolution(3, 64, 7, 2), ReLU(inplace=True), MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = WIDER * width
    return Sequential(*layers, AdaptiveAvgPool2d(1), Flatten(), Linear(inputs, classes))
