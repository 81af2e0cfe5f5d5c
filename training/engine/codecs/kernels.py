"""The kernels of the codecs, on concatenated fp32 values. `read` is the inverse of `write`, up to the codec's loss.
What a config says of a codec, and how large its frames are, is in `rules/codecs.py`, without torch."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from scalebook.training.engine.rules.codecs import (
    CODECS,
    HEADER,
    Bf16,
    Codec,
    Fp16,
    Int8,
    Part,
    PowerSgd,
    Qsgd,
    RandomK,
    Shape,
    Sign,
    TopK,
    blocks,
    numel,
    shared,
)

_HEAD: Final = struct.Struct("<4sBBHQQQ")
_MAGIC: Final = b"SBFR"
PLAIN: Final = 1
"""Flag: values are uncompressed, since some are not finite."""
PACKED: Final = 2
"""Flag: everything after the header is compressed by zstd."""
PARTIAL: Final = 4
"""Flag: a bitmap after the header says which tensors are present."""
_FLAGS: Final = PLAIN | PACKED | PARTIAL
assert _HEAD.size == HEADER


class FrameHead(NamedTuple):
    """`codec`: its number. `draw`: seed of the random numbers. `plain`, `sent`: bytes after the header, before and
    after zstd."""

    codec: int
    flags: int
    tensors: int
    draw: int
    plain: int
    sent: int


class FrameError(ValueError):
    """Bytes that are not a frame that the receiver expects."""


def write_head(frame: Tensor, head: FrameHead) -> None:
    """Write a header into the first bytes of a frame (uint8)."""
    packed = _HEAD.pack(_MAGIC, head.codec, head.flags, head.tensors % 65536, head.draw, head.plain, head.sent)
    frame.numpy().data[:HEADER] = packed


def read_head(frame: Tensor, codec: int, tensors: int) -> FrameHead:
    """The header. FrameError for another codec, other tensors, or a wrong length."""
    if frame.dtype != torch.uint8 or frame.dim() != 1 or frame.numel() < HEADER:
        raise FrameError(f"frame: has {frame.numel()} bytes, fewer than a header")
    magic, *fields = _HEAD.unpack_from(frame.numpy().data)
    head = FrameHead(*fields)
    if magic != _MAGIC or head.flags & ~_FLAGS or (not head.flags & PACKED and head.plain != head.sent):
        raise FrameError("frame: no header")
    if head.codec != codec or head.tensors != tensors % 65536:
        raise FrameError(
            f"frame: has {head.tensors} tensors of codec {head.codec}, but {tensors} of codec {codec} were expected"
        )
    if HEADER + head.sent != frame.numel():
        raise FrameError(f"frame: has {frame.numel()} bytes instead of {HEADER + head.sent}")
    return head


def bitmap_bytes(tensors: int) -> int:
    """Bytes of the bitmap that says which tensors are present."""
    return -(-tensors // 64) * 8


class FrameLayout:
    """Where the parts of a frame lie, after its header and bitmap."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.spans: list[tuple[int, int, torch.dtype]] = []
        self.gaps: list[int] = []  # ends of parts before which some bytes belong to none
        self.nbytes = 0
        for part in parts:
            kind = getattr(torch, part.dtype)
            end = self.nbytes + part.numbers * kind.itemsize
            self.spans.append((self.nbytes, end, kind))
            self.nbytes += part.nbytes
            if end < self.nbytes:
                self.gaps.append(self.nbytes)

    def arrays(self, body: Tensor) -> list[Tensor]:
        """Views of the parts into `body` (uint8 [nbytes])."""
        return [body[start:end].view(kind) for start, end, kind in self.spans]

    def clear_gaps(self, body: Tensor) -> None:
        """Zero the padding, so that equal frames have equal bytes."""
        for end in self.gaps:
            body.numpy()[end - 8 : end] = 0


class Lossless:
    """Compresses and decompresses with zstd, whose library is loaded only if a codec uses it."""

    def __init__(self, level: int) -> None:
        import zstandard

        self._library = zstandard
        self._packer, self._unpacker = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()

    def pack(self, data: memoryview) -> bytes:
        """Compress."""
        return self._packer.compress(data)

    def unpack(self, data: memoryview, size: int) -> bytes:
        """Decompress to `size` bytes. FrameError, before more memory is taken, if there are more or fewer."""
        try:
            if self._library.frame_content_size(data) != size:
                raise FrameError(f"frame: its zstd data is not {size} bytes long")
            return self._unpacker.decompress(data, max_output_size=size)
        except self._library.ZstdError as error:
            raise FrameError(f"frame: {error}") from None


Declared = TypeVar("Declared", bound=Codec)
KERNELS: Final[dict[str, type["Kernel[Any]"]]] = {}
"""The kernels of all lossy codecs, by name."""


class Kernel(ABC, Generic[Declared]):
    """The kernel of one codec, for tensors of these shapes; stateless."""

    casts = False
    """Whether it only changes the type of the values, so that they need not be concatenated first."""

    def __init_subclass__(cls) -> None:
        """The type argument names the codec, as in `Kernel[Int8]`; `Kernel[Bf16 | Fp16]` is for both."""
        super().__init_subclass__()
        bases = vars(cls).get("__orig_bases__", ())
        declared = [one for base in bases if get_origin(base) is Kernel for one in get_args(base)]
        for codec in [codec for one in declared for codec in get_args(one) or (one,)]:
            if CODECS.get(codec.name, codec) is not codec:
                raise TypeError(f"{codec.__name__}: {codec.name} is the name of a built-in codec. Choose another name.")
            KERNELS[codec.name] = cls

    def __init__(self, codec: Declared, shapes: Sequence[Shape]) -> None:
        self.codec, self.shapes, self.count = codec, shapes, numel(shapes)

    @abstractmethod
    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        """Encode `values` [count] into `parts`; False if a value is not finite, and `parts` are then undefined.

        `draw`: seed of the random numbers. `state`: what the sender keeps beside the residual, updated in place; None
        without error feedback. `scratch` [count]: scratch memory.
        """

    @abstractmethod
    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        """Decode into `values` [count]. `feedback`: whether the sender has error feedback. FrameError for parts that no
        `write` makes."""


class Cast(Kernel[Bf16 | Fp16]):
    """Rounds to 16 bits."""

    casts = True

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        parts[0].copy_(values)
        return True  # who casts looks at what it has become

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        values.copy_(parts[0])


def finite(values: Tensor) -> bool:
    """Whether all values are finite; also False if their sum overflows."""
    return bool(torch.isfinite(values.sum()))


def generator(draw: int) -> torch.Generator:
    """The random numbers of a frame. All 64 bits of `draw` count: torch's generator uses only the lowest 32, so they
    are mixed first (SplitMix64's finalizer, Steele et al. 2014)."""
    mixed = ((draw ^ draw >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) % 2**64
    return torch.Generator().manual_seed((mixed ^ mixed >> 31) % 2**32)


# --- few bits for a value, and a scale for each block of values ------------------------------------------------------

_TINY: Final = 1e-30
"""A block whose largest value is below this becomes zeros, since the inverse of its scale would overflow."""


class Blocks:
    """The blocks of `count` values: whole blocks as rows, then the rest as one row."""

    def __init__(self, count: int, block: int) -> None:
        whole = count // block
        self.spans = [(0, whole * block, 0, whole)] if whole else []
        if count % block:
            self.spans.append((whole * block, count, whole, whole + 1))

    def rows(self, scales: Tensor, *values: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Scales [rows, 1] and values [rows, block] of the whole blocks, then of the rest."""
        for start, end, first, last in self.spans:
            rows = last - first
            yield scales[first:last].view(rows, 1), *(v[start:end].view(rows, -1) for v in values)


class Int8Kernel(Kernel[Int8]):
    """scale = max |x| / 127; code = round(x / scale), halves to even."""

    def __init__(self, codec: Int8, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        codes, scales = parts
        for scale, x, scaled, code in self._blocks.rows(scales, values, scratch, codes):
            largest = torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg_())
            usable = largest > _TINY  # not where NaN
            torch.where(usable, largest / 127, torch.where(largest.isnan(), largest, 0.0), out=scale)
            torch.mul(x, torch.where(usable, 127 / largest, 0.0), out=scaled).round_()
            code.copy_(scaled)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        codes, scales = parts
        for scale, x, code in self._blocks.rows(scales, values, codes):
            x.copy_(code)
            x.mul_(scale)


class SignKernel(Kernel[Sign]):
    """scale = mean |x|; a bit is 1 where x is negative."""

    def __init__(self, codec: Sign, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)
        self._eight = 1.0 - 2.0 * torch.from_numpy(np.unpackbits(np.arange(256, dtype=np.uint8))).view(256, 8).float()
        self._padded = torch.empty(-(-self.count // 8), 8)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        bits, scales = parts
        torch.abs(values, out=scratch)
        for scale, magnitude in self._blocks.rows(scales, scratch):
            torch.mean(magnitude, 1, keepdim=True, out=scale)
        bits.numpy()[:] = np.packbits(values.numpy() < 0)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        bits, scales = parts
        torch.index_select(self._eight, 0, bits.int(), out=self._padded)
        signs = self._padded.view(-1)[: self.count]
        for scale, x, sign in self._blocks.rows(scales, values, signs):
            torch.mul(sign, scale, out=x)


class QsgdKernel(Kernel[Qsgd]):
    """scale = ||x|| / levels; code = round(x / scale + u), u uniform from -1/2 to below 1/2 in steps of 2**-16.

    With error feedback decoded values are divided by 1 + variance, which makes the codec a contraction.
    """

    def __init__(self, codec: Qsgd, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._blocks = Blocks(self.count, codec.block)
        self._drawn = torch.empty(-(-self.count // 4), dtype=torch.int64)
        self._per_byte = 8 // codec.bits
        self._codes = torch.zeros(blocks(self.count, self._per_byte) * self._per_byte, dtype=torch.uint8)

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        packed, scales = parts
        self._drawn.random_(-(2**63), None, generator=generator(draw))
        dither = self._drawn.view(torch.int16)[: self.count]  # whole numbers, of -2**15 to 2**15 - 1
        for scale, x, scaled in self._blocks.rows(scales, values, scratch):
            torch.linalg.vector_norm(x, 2, 1, keepdim=True, out=scale).div_(self.codec.levels)
            usable = scale > _TINY  # not where NaN
            torch.mul(x, torch.where(usable, 1 / scale, 0.0), out=scaled)
            scale.copy_(torch.where(usable | scale.isnan(), scale, 0.0))
        most = float(self.codec.levels)
        scratch.add_(dither, alpha=2.0**-16).round_().clamp_(-most, most).add_(most)
        self._codes[: self.count] = scratch
        self._pack(packed)
        return finite(scales)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        packed, scales = parts
        self._unpack(packed)
        values.copy_(self._codes[: self.count]).sub_(float(self.codec.levels))
        factor = 1 / (1 + self.codec.variance) if feedback else 1.0
        for scale, x in self._blocks.rows(scales, values):
            x.mul_(scale * factor)

    def _pack(self, packed: Tensor) -> None:
        """The first code lies in the lowest bits."""
        if self._per_byte == 1:
            packed.copy_(self._codes)
            return
        codes = self._codes.view(-1, self._per_byte)
        packed.copy_(codes[:, 0])
        for place in range(1, self._per_byte):
            packed |= codes[:, place] << (place * self.codec.bits)

    def _unpack(self, packed: Tensor) -> None:
        codes, mask = self._codes.view(-1, self._per_byte), 2**self.codec.bits - 1
        for place in range(self._per_byte):
            codes[:, place] = packed >> (place * self.codec.bits) & mask


# --- a few of the values, and where they belong ----------------------------------------------------------------------

_SAMPLE: Final = 8192
"""Magnitudes, evenly spaced, from which the threshold of the largest values is estimated."""
_ALL_BELOW: Final = np.uint64(0x0101010101010101)
_SPARE: Final = 4.0
"""How many standard deviations the estimate is low on purpose: one too high costs a second pass."""


class TopKKernel(Kernel[TopK]):
    """The k largest magnitudes, exactly; ties at the border are broken arbitrarily."""

    def __init__(self, codec: TopK, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._k = shared(codec.share, self.count)
        self._below, self._over = (np.ones(-(-self.count // 8) * 8, dtype=bool) for _ in range(2))

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        places, chosen = parts
        candidates = self._candidates(values)
        magnitudes = (
            torch.abs(values, out=scratch) if candidates is None else torch.index_select(values, 0, candidates).abs_()
        )
        if not finite(magnitudes):  # what is not finite is among the candidates
            return False
        largest = torch.topk(magnitudes, self._k, sorted=False).indices
        if candidates is not None:
            largest = candidates[largest]
        largest.numpy().sort()  # neighbours in memory, and what zstd likes; torch's takes ten times as long
        places.copy_(largest)
        torch.index_select(values, 0, largest, out=chosen)
        return True

    def _candidates(self, values: Tensor) -> Tensor | None:
        """Places of all magnitudes from an estimated threshold on, k or more of them; None if that saves nothing.

        Values that are not below it are candidates, so those that are not finite are too: no comparison with NaN is
        true.
        """
        step = self.count // _SAMPLE
        if step < 2 or self._k * 4 > self.count:
            return None
        sample = values[::step].abs()
        expected = self._k / step
        rank = min(sample.numel(), int(expected + _SPARE * expected**0.5) + 2)
        threshold = np.float32(torch.topk(sample, rank, sorted=False).values.min())
        below, numbers = self._below, values.numpy()
        np.less(numbers, threshold, out=below[: self.count])
        np.greater(numbers, -threshold, out=self._over[: self.count])
        np.bitwise_and(below.view(np.uint64), self._over.view(np.uint64), out=below.view(np.uint64))
        eights = np.flatnonzero(below.view(np.uint64) != _ALL_BELOW)  # of most all are, and need no second look
        within = np.flatnonzero(~below.reshape(-1, 8)[eights])
        places = eights[within >> 3] * 8 + (within & 7)
        return torch.from_numpy(places) if self._k <= places.size else None

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        places, chosen = parts
        if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < self.count):
            raise FrameError(f"frame: has positions outside 0 to {self.count - 1}")
        values.zero_()
        values.scatter_(0, places.long(), chosen)


class RandomKKernel(Kernel[RandomK]):
    """One value of each of k equal stretches, at a random place that both sides draw from the frame's seed."""

    def __init__(self, codec: RandomK, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        k = shared(codec.share, self.count)
        borders = torch.arange(k + 1, dtype=torch.int64) * self.count // max(k, 1)
        self._starts, self._lengths = borders[:-1], borders.diff()

    def _places(self, draw: int) -> Tensor:
        drawn = torch.rand(self._starts.numel(), dtype=torch.float64, generator=generator(draw))
        return self._starts + (drawn * self._lengths).long()

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        torch.index_select(values, 0, self._places(draw), out=parts[0])
        return finite(values)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        values.zero_()
        values.scatter_(0, self._places(draw), parts[0] if feedback else parts[0] * self._lengths)


# --- a matrix as the product of two thin ones ------------------------------------------------------------------------


class PowerSgdKernel(Kernel[PowerSgd]):
    """P = orthonormal columns of M Q, then Q = M^T P; decoded is P Q^T, the projection of M on P's columns.

    Q is the sender's last one if it keeps it, else random.
    """

    def __init__(self, codec: PowerSgd, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._sizes = [codec.matrix(shape) for shape in shapes]
        self._lengths = [numel([shape]) for shape in shapes]

    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        if not finite(values):
            return False
        lefts, rights, rest = parts
        drawn = None
        if state is None or not bool(state.any()):
            drawn = torch.empty_like(rights).normal_(generator=generator(draw))
        before = state if drawn is None else drawn
        assert before is not None
        at_left = at_right = at_rest = 0
        for size, matrix in zip(self._sizes, torch.split(values, self._lengths), strict=True):
            if size is None:
                rest[at_rest : at_rest + matrix.numel()] = matrix
                at_rest += matrix.numel()
                continue
            (rows, columns), rank = size, self.codec.rank
            whole, right = matrix.view(rows, columns), slice(at_right, at_right + rank * columns)
            left = torch.linalg.qr(whole @ before[right].view(columns, rank)).Q
            lefts[at_left : at_left + rank * rows].view(rows, rank)[:] = left
            torch.mm(whole.T, left, out=rights[right].view(columns, rank))
            at_left, at_right = at_left + rank * rows, at_right + rank * columns
        if state is not None:
            state.copy_(rights)
        return finite(rights)

    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        lefts, rights, rest = parts
        at_left = at_right = at_rest = 0
        for size, matrix in zip(self._sizes, torch.split(values, self._lengths), strict=True):
            if size is None:
                matrix.copy_(rest[at_rest : at_rest + matrix.numel()])
                at_rest += matrix.numel()
                continue
            (rows, columns), rank = size, self.codec.rank
            left = lefts[at_left : at_left + rank * rows].view(rows, rank)
            right = rights[at_right : at_right + rank * columns].view(columns, rank)
            torch.mm(left, right.T, out=matrix.view(rows, columns))
            at_left, at_right = at_left + rank * rows, at_right + rank * columns
