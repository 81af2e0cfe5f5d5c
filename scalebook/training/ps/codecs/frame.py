"""A frame: a fixed header, which tensors are in it where some are not, then the parts, each an array of numbers."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from scalebook.training.ps.policy.frames import HEADER, Part

_HEAD: Final = struct.Struct("<4sBBHQQQ")
_MAGIC: Final = b"SBFR"
PLAIN: Final = 1
"""Flag: values as they are, since some are not finite."""
PACKED: Final = 2
"""Flag: all behind the header is compressed by zstd."""
PARTIAL: Final = 4
"""Flag: behind the header, a bit for each tensor says whether it is there."""
_FLAGS: Final = PLAIN | PACKED | PARTIAL
assert _HEAD.size == HEADER


class FrameHead(NamedTuple):
    """`codec`: its number. `draw`: the seed of what was drawn. `plain`: bytes behind the header before zstd, `sent`
    with it."""

    codec: int
    flags: int
    tensors: int
    draw: int
    plain: int
    sent: int


class FrameError(ValueError):
    """Bytes that are no frame of what the receiver expects."""


def write_head(frame: Tensor, head: FrameHead) -> None:
    """Into the first bytes of a frame (uint8)."""
    packed = _HEAD.pack(_MAGIC, head.codec, head.flags, head.tensors % 65536, head.draw, head.plain, head.sent)
    frame.numpy().data[:HEADER] = packed


def read_head(frame: Tensor, codec: int, tensors: int) -> FrameHead:
    """FrameError for one of another codec or plan, or of another length than it says."""
    if frame.dtype != torch.uint8 or frame.dim() != 1 or frame.numel() < HEADER:
        raise FrameError(f"frame: {frame.numel()} bytes are less than a header")
    magic, *fields = _HEAD.unpack_from(frame.numpy().data)
    head = FrameHead(*fields)
    if magic != _MAGIC or head.flags & ~_FLAGS or (not head.flags & PACKED and head.plain != head.sent):
        raise FrameError("frame: no header")
    if head.codec != codec or head.tensors != tensors % 65536:
        raise FrameError(f"frame: codec {head.codec} of {head.tensors} tensors, not {codec} of {tensors}")
    if HEADER + head.sent != frame.numel():
        raise FrameError(f"frame: {frame.numel()} bytes, not {HEADER + head.sent}")
    return head


def bitmap_bytes(tensors: int) -> int:
    """Of the bits that say which tensors are there."""
    return -(-tensors // 64) * 8


class FrameLayout:
    """Where the parts of a frame lie behind its header and bits."""

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
        """So that equal frames have equal bytes."""
        for end in self.gaps:
            body.numpy()[end - 8 : end] = 0


class Lossless:
    """A compressor by zstd and what undoes it. The library is loaded where a codec asks for it alone."""

    def __init__(self, level: int) -> None:
        import zstandard

        self._library = zstandard
        self._packer, self._unpacker = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()

    def pack(self, data: memoryview) -> bytes:
        """The bytes, compressed."""
        return self._packer.compress(data)

    def unpack(self, data: memoryview, size: int) -> bytes:
        """The `size` bytes that were compressed. FrameError where they are others, before memory is taken for more."""
        try:
            if self._library.frame_content_size(data) != size:
                raise FrameError(f"frame: its zstd is not of {size} bytes")
            return self._unpacker.decompress(data, max_output_size=size)
        except self._library.ZstdError as error:
            raise FrameError(f"frame: {error}") from None
