"""Lossless compression of what a frame holds, by zstd."""

from scalebook.training.ps.codecs.frame import FrameError


class Lossless:
    """A compressor of this level, and what undoes it. The library is loaded where a codec asks for it alone."""

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
