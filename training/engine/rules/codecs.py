"""The codecs: what they have in common, each one's settings, and the parts of their frames.

A codec makes a frame of the tensors of one shard: a header, then parts, each an array of numbers of one kind. Number
and length of the parts follow from the tensors' shapes, so bytes are known before anything runs. The kernels that
encode and decode are in `engine/codecs/kernels.py`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import Above, AtLeast, AtMost, BySettings, PositiveInt
from scalebook.training.engine.rules.facts import CodecFacts

Shape = tuple[int, ...]
HEADER: Final = 32
"""Bytes of a frame's header."""
WIDTHS: Final = {
    "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of each kind of number in a part."""


class Part(NamedTuple):
    """An array of so many numbers of one kind."""

    dtype: str
    numbers: int

    @property
    def nbytes(self) -> int:
        """Bytes in a frame; each part begins at a multiple of 8. ValueError for another kind of number."""
        if self.dtype not in WIDTHS:
            raise ValueError(f"Part: a frame cannot contain {self.dtype}. Use one of {', '.join(WIDTHS)}.")
        return -(-self.numbers * WIDTHS[self.dtype] // 8) * 8


class Codec(BySettings, ABC):
    """How the tensors of one shard travel in one direction."""

    ARGUMENT = "push_codec"
    name: ClassVar[str]
    """Its name in a config and in messages."""
    words: ClassVar[str | None] = None
    """The label that tells runs apart, with arguments worth showing at any value; None: its name."""
    exact: ClassVar[bool] = False
    """Whether decoding gives back exactly what was encoded."""
    omits: ClassVar[bool] = False
    """Whether values are left out, so that a difference takes several frames to arrive."""
    whole: ClassVar[bool] = True
    """Whether parameters are sent as they are; else only their difference to the worker's last ones."""
    zstd: int
    error_feedback: bool = False
    """Whether the loss of a frame is added to the next one."""

    @classmethod
    def facts(cls) -> CodecFacts:
        """Its facts, for code that cannot import it."""
        return CodecFacts.of(cls)

    @abstractmethod
    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        """The parts of a frame with tensors of these shapes."""

    @property
    def codes(self) -> bool:
        """Whether tensors are sent in frames at all; else raw."""
        return not self.exact or self.zstd > 0

    @property
    def in_halves(self) -> bool:
        """Whether values are only rounded to 16 bits, so that gradients can be added without frames."""
        return rounded_to(self) is not None and not self.zstd

    def nbytes(self, shapes: Sequence[Shape], width: int = 4) -> int:
        """Bytes of a frame of finite values; with zstd an upper limit. `width`: bytes of an uncompressed value."""
        if not self.codes:
            return width * numel(shapes)
        parts = plain([(shape, "float64" if width == 8 else "float32") for shape in shapes])
        return HEADER + sum(part.nbytes for part in (parts if self.exact else self.parts(shapes)))

    def kept(self, shapes: Sequence[Shape]) -> int:
        """Numbers (fp32) that the sender keeps from one frame to the next."""
        return numel(shapes) if self.error_feedback else 0

    def check(self, shapes: Sequence[Shape], argument: str) -> None:
        """ArgumentError if it makes no sense for tensors of these shapes."""


def plain(tensors: Sequence[tuple[Shape, str]]) -> tuple[Part, ...]:
    """The parts of a frame with these tensors uncompressed, each a shape and a type."""
    return tuple(Part(dtype, math.prod(shape)) for shape, dtype in tensors)


def numel(shapes: Sequence[Shape]) -> int:
    """Numbers in tensors of these shapes."""
    return sum(math.prod(shape) for shape in shapes)


CodecName = Literal["fp32", "bf16", "fp16", "int8", "sign", "qsgd", "topk", "randomk", "powersgd"]
Level = Annotated[int, AtLeast(0, "0 for none, or a zstd level"), AtMost(22)]


class Fp32(Codec):
    """No compression: values keep their own type. There is no loss and no cost.

    Args:
        zstd: Level of lossless compression (zstd); 0: none. Compression is slow, and hardly makes gradients smaller.
    """

    name = "fp32"
    words = ""
    exact = True

    def __init__(self, zstd: Level = 0) -> None:
        self.zstd = zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        return (Part("float32", numel(shapes)),)


class Bf16(Codec):
    """Half the bytes: rounds values to bfloat16, 8 bits of precision in the range of fp32.

    Args:
        error_feedback: Add the rounding error to the next gradient. This costs time, and the memory of one gradient per
            worker.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "bf16"

    def __init__(self, error_feedback: bool = False, zstd: Level = 0) -> None:
        self.error_feedback, self.zstd = error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        return (Part("bfloat16", numel(shapes)),)


class Fp16(Codec):
    """Half the bytes: rounds values to fp16, 11 bits of precision, between 6e-8 and 65,504.

    A frame with values beyond that range is sent uncompressed.

    Args:
        error_feedback: Add the rounding error to the next gradient. This costs time, and the memory of one gradient per
            worker.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "fp16"

    def __init__(self, error_feedback: bool = False, zstd: Level = 0) -> None:
        self.error_feedback, self.zstd = error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        return (Part("float16", numel(shapes)),)


class Int8(Codec):
    """A quarter of the bytes: rounds values to 255 levels, scaled to the largest magnitude in each block.

    Args:
        block: Number of values that share a scale, 8 or more. Smaller blocks are more precise, but need more bytes for
            scales.
        error_feedback: Add the rounding error to the next gradient (Karimireddy et al. 2019).
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "int8"
    whole = False

    def __init__(
        self, block: Annotated[int, AtLeast(8, "1024")] = 1024, error_feedback: bool = True, zstd: Level = 0
    ) -> None:
        self.block, self.error_feedback, self.zstd = block, error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        count = numel(shapes)
        return Part("int8", count), Part("float32", blocks(count, self.block))


class Sign(Codec):
    """1/32 of the bytes: one bit for the sign of each value, and the mean magnitude of each block.

    EF-SignSGD (Karimireddy et al. 2019). Without error feedback it may not converge.

    Args:
        block: Number of values that share a magnitude, 8 or more.
        error_feedback: Add the part that was lost to the next gradient.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "sign"
    whole = False

    def __init__(
        self, block: Annotated[int, AtLeast(8, "1024")] = 1024, error_feedback: bool = True, zstd: Level = 0
    ) -> None:
        self.block, self.error_feedback, self.zstd = block, error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        count = numel(shapes)
        return Part("uint8", -(-count // 8)), Part("float32", blocks(count, self.block))


class Qsgd(Codec):
    """Rounds values randomly up or down to one of a few levels, relative to the norm of their block. Unbiased.

    QSGD (Alistarh et al. 2017). A value takes 2 bits with 1 level, 4 bits with up to 7 levels, and 8 bits with up to
    127 levels.

    Args:
        levels: Number of levels between zero and the norm, 1 to 127.
        block: Number of values that share a norm, 8 or more.
        error_feedback: Add the rounding error to the next gradient. Decoded values are then scaled down so that errors
            cannot grow, and are no longer unbiased.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "qsgd"
    words = "qsgd, {levels} levels"
    whole = False

    def __init__(
        self,
        levels: Annotated[int, AtLeast(1, "1 to 127"), AtMost(127)] = 127,
        block: Annotated[int, AtLeast(8, "512")] = 512,
        error_feedback: bool = False,
        zstd: Level = 0,
    ) -> None:
        self.levels, self.block, self.error_feedback, self.zstd = levels, block, error_feedback, zstd

    @property
    def bits(self) -> int:
        """Bits of one value."""
        return 2 if self.levels == 1 else 4 if self.levels <= 7 else 8

    @property
    def variance(self) -> float:
        """E||C(x) - x||^2 is at most this times ||x||^2 (Alistarh et al. 2017, lemma 3.1)."""
        return min(self.block / self.levels**2, math.sqrt(self.block) / self.levels)

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        count = numel(shapes)
        return Part("uint8", -(-count * self.bits // 8)), Part("float32", blocks(count, self.block))


class TopK(Codec):
    """Sends only the largest values and their positions, with 8 bytes per value.

    Args:
        share: Share of a shard's values to send, above 0 and at most 1. A share above 0.5 saves no bytes.
        error_feedback: Add the omitted values to the next gradient (Stich et al. 2018). Without it, small values are
            never sent.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "topk"
    omits = True
    words = "topk {share}"
    whole = False

    def __init__(
        self,
        share: Annotated[float, Above(0, "0.01"), AtMost(1, "0.01")] = 0.01,
        error_feedback: bool = True,
        zstd: Level = 0,
    ) -> None:
        self.share, self.error_feedback, self.zstd = share, error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        count = shared(self.share, numel(shapes))
        return Part("int32", count), Part("float32", count)

    def check(self, shapes: Sequence[Shape], argument: str) -> None:
        _check_share(self.share, shapes, argument)


class RandomK(Codec):
    """Sends values at random positions, one from each of many equal segments, with 4 bytes per value. Sender and
    receiver draw the same positions.

    Args:
        share: Share of a shard's values to send, above 0 and at most 1.
        error_feedback: Add the omitted values to the next gradient. Without error feedback, the sent values are scaled
            up, so that they stay unbiased.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "randomk"
    omits = True
    words = "randomk {share}"
    whole = False

    def __init__(
        self,
        share: Annotated[float, Above(0, "0.01"), AtMost(1, "0.01")] = 0.01,
        error_feedback: bool = True,
        zstd: Level = 0,
    ) -> None:
        self.share, self.error_feedback, self.zstd = share, error_feedback, zstd

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        return (Part("float32", shared(self.share, numel(shapes))),)

    def check(self, shapes: Sequence[Shape], argument: str) -> None:
        _check_share(self.share, shapes, argument)


class PowerSgd(Codec):
    """Sends each matrix as the product of two thin ones, from one step of power iteration (Vogels et al. 2019).

    A convolution kernel is treated as a matrix: output channels by all other dimensions. Tensors that would not shrink,
    such as vectors, are sent uncompressed.

    Args:
        rank: Number of columns of the thin matrices, 1 or more. More columns are more accurate, but need more bytes.
        error_feedback: Add the error to the next gradient, and start each iteration from the result of the last one.
        zstd: Level of additional lossless compression (zstd); 0: none.
    """

    name = "powersgd"
    omits = True
    words = "powersgd, rank {rank}"
    whole = False

    def __init__(self, rank: PositiveInt = 2, error_feedback: bool = True, zstd: Level = 0) -> None:
        self.rank, self.error_feedback, self.zstd = rank, error_feedback, zstd

    def matrix(self, shape: Shape) -> tuple[int, int] | None:
        """Rows and columns of the matrix to factor; None for a tensor that is sent uncompressed."""
        rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, 1)
        return (rows, columns) if self.rank * (rows + columns) < rows * columns else None

    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        sizes = [size for shape in shapes if (size := self.matrix(shape))]
        rest = numel(shapes) - sum(rows * columns for rows, columns in sizes)
        return (
            Part("float32", self.rank * sum(rows for rows, _ in sizes)),
            Part("float32", self.rank * sum(columns for _, columns in sizes)),
            Part("float32", rest),
        )

    def kept(self, shapes: Sequence[Shape]) -> int:
        return numel(shapes) + self.parts(shapes)[1].numbers if self.error_feedback else 0

    def check(self, shapes: Sequence[Shape], argument: str) -> None:
        if not any(map(self.matrix, shapes)):
            most = max((rows * columns - 1) // (rows + columns) for rows, columns in map(_sides, shapes or [()]))
            fix = f"Use at most {most}" if most > 0 else "Use bf16"
            raise ArgumentError(
                "out-of-bounds",
                f"{argument}.rank",
                f"{self.rank} does not make any matrix of this model smaller",
                f"{fix}.",
            )


def _check_share(share: float, shapes: Sequence[Shape], argument: str) -> None:
    if (count := numel(shapes)) and round(share * count) == 0:
        raise ArgumentError(
            "out-of-bounds",
            f"{argument}.share",
            f"a share of {share} of {count} values is less than one value",
            f"Use {1 / count:.1g} or more.",
        )


CODECS: Final[dict[str, type[Codec]]] = {codec.name: codec for codec in Codec.__subclasses__()}
"""All codecs by name, in the order of their numbers in frames: add a new one last."""


def make_codec(codec: CodecName | Codec, argument: str = Codec.ARGUMENT) -> Codec:
    """The codec itself, or the one of this name with its defaults. `argument`: its argument in the config."""
    if isinstance(codec, Codec):
        return codec
    if codec not in CODECS:
        raise ArgumentError("unknown-value", argument, f"{codec!r} is unknown", f"Use one of {', '.join(CODECS)}.")
    return CODECS[codec]()


def rounded_to(codec: Codec) -> str | None:
    """The type to which values are rounded one by one, without error feedback; None for other codecs."""
    if isinstance(codec, Bf16 | Fp16) and not codec.error_feedback:
        return "bfloat16" if isinstance(codec, Bf16) else "float16"
    return None


def stays_finite(codec: Codec) -> bool:
    """Whether rounding keeps finite values finite: bfloat16 has the range of fp32."""
    return not isinstance(codec, Fp16)


def blocks(count: int, block: int) -> int:
    """The number of blocks of so many numbers; the last one may be shorter."""
    return -(-count // block)


def shared(share: float, count: int) -> int:
    """How many of `count` numbers the share is: at least one, if there are any."""
    return min(count, max(1, round(share * count)))


def _sides(shape: Shape) -> tuple[int, int]:
    rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, 1)
    return (rows, columns) if rows * columns else (1, 1)
