"""What all codecs have in common; they stand in `codecs.py`. What encodes and decodes is
`ps/codecs/kernels.py`.

A codec makes a frame of the tensors of one shard: a header, then parts, each an array of numbers of one kind. Which
parts, and how long, follows from the tensors' shapes, so that bytes are known before anything runs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from scalebook.training.ps.policy.by_settings import BySettings
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.facts import CodecFacts

Shape = tuple[int, ...]

HEADER: Final = 32
"""Bytes at the head of every frame."""
WIDTHS: Final = {"uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "float64": 8}
"""Bytes of the numbers that a part can have."""


class Part(NamedTuple):
    """So many numbers of one kind."""

    dtype: str
    numbers: int

    @property
    def nbytes(self) -> int:
        """Bytes in a frame, where each part begins at a multiple of 8."""
        return -(-self.numbers * WIDTHS[self.dtype] // 8) * 8


class Codec(BySettings, ABC):
    """How the tensors of one shard travel in one direction."""

    KEY = f"{ARGUMENTS}.push_codec"
    name: ClassVar[str]
    """How a config and messages call it."""
    words: ClassVar[str | None] = None
    """What tells runs apart, with arguments worth saying at any value; None: its name."""
    exact: ClassVar[bool] = False
    """Whether what is decoded is what was encoded."""
    whole: ClassVar[bool] = True
    """Whether parameters travel by it as they are; else only how they differ from the worker's last ones."""
    zstd: int
    error_feedback: bool = False
    """Whether what a frame leaves out is added to the next one."""

    @classmethod
    def facts(cls) -> CodecFacts:
        """What those must know of it who cannot run it."""
        return CodecFacts.of(cls)

    @abstractmethod
    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        """Of a frame with tensors of these shapes."""

    @property
    def codes(self) -> bool:
        """Whether tensors travel in frames at all; else as they are."""
        return not self.exact or self.zstd > 0

    def nbytes(self, shapes: Sequence[Shape], width: int = 4) -> int:
        """Bytes of a frame of finite values; with zstd, at most. `width`: bytes of a value as it is."""
        if not self.codes:
            return width * numel(shapes)
        parts = plain([(shape, "float64" if width == 8 else "float32") for shape in shapes])
        return HEADER + sum(part.nbytes for part in (parts if self.exact else self.parts(shapes)))

    def kept(self, shapes: Sequence[Shape]) -> int:
        """Numbers (fp32) that the sender keeps from one frame to the next."""
        return numel(shapes) if self.error_feedback else 0

    def check(self, shapes: Sequence[Shape], key: str) -> None:
        """ValueError, naming key and remedy, where it makes no sense for tensors of these shapes."""


def plain(tensors: Sequence[tuple[Shape, str]]) -> tuple[Part, ...]:
    """Of a frame that carries these tensors, each a shape and a type, as they are."""
    return tuple(Part(dtype, math.prod(shape)) for shape, dtype in tensors)


def numel(shapes: Sequence[Shape]) -> int:
    """Numbers in tensors of these shapes."""
    return sum(math.prod(shape) for shape in shapes)
