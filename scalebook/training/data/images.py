"""What images are: their geometry for those who build models, and the arrays that a data set's files hold."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

Batch = tuple[torch.Tensor, torch.Tensor]
"""images float32 [batch, channels, height, width], labels int64 [batch]."""


@dataclass(frozen=True)
class ImageSpec:
    """The geometry of a data set's images, as the models need it.

    A batch is `(images, labels)`: float32 [batch, channels, height, width] and int64 [batch]. Unless `normalized`,
    a pixel of level k (an integer from 0 to levels - 1) has the value k / (levels - 1).
    """

    channels: int
    height: int
    width: int
    levels: int = 256
    classes: int = 10
    normalized: bool = False


class LabelledImages(NamedTuple):
    """`pixels` uint8 [images, channels, height, width] in levels, `labels` int64 [images]; shared, never modified."""

    pixels: torch.Tensor
    labels: torch.Tensor
