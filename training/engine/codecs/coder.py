"""Encode the tensors of one shard into a frame, and decode them from it: the one interface of all codecs."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from scalebook.training.engine.codecs.kernels import (
    KERNELS,
    PACKED,
    PARTIAL,
    PLAIN,
    FrameError,
    FrameHead,
    FrameLayout,
    Kernel,
    Lossless,
    bitmap_bytes,
    finite,
    read_head,
    write_head,
)
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.codecs import CODECS, HEADER, Codec, Shape, numel, plain, stays_finite

_NUMBERS: Final = {name: number for number, name in enumerate(CODECS)}
_OWN: Final = 255
"""The number in the frames of a codec of a person's own: both ends have the same config."""
_PLANS: Final = 8
"""How many sets of present tensors keep their scratch memory."""


class Spec(NamedTuple):
    """Shape and type of one tensor; the type is a floating-point one."""

    shape: Shape
    dtype: torch.dtype


class Encoded(NamedTuple):
    """`frame`: uint8 [bytes]. `residual`: what the sender adds to its next frame; None without error feedback."""

    frame: Tensor
    residual: Tensor | None


class _Plan:
    """The layout of frames with these tensors present, and scratch memory to make them."""

    def __init__(self, codec: Codec, specs: Sequence[Spec]) -> None:
        self.shapes = [spec.shape for spec in specs]
        self.lengths = [numel([shape]) for shape in self.shapes]
        self.count = sum(self.lengths)
        self.dtypes = [spec.dtype for spec in specs]
        self.is_fp32 = all(dtype is torch.float32 for dtype in self.dtypes)
        self.plain = FrameLayout(plain([(spec.shape, str(spec.dtype).removeprefix("torch.")) for spec in specs]))
        self.parts = self.plain if codec.exact else FrameLayout(codec.parts(self.shapes))
        self.kernel: Kernel[Any] | None = None if codec.exact else KERNELS[codec.name](codec, self.shapes)
        self.kept = codec.kept(self.shapes)
        self._values, self._views = torch.empty(0), list[Tensor]()
        self._scratch = torch.empty(0)
        self._like = [torch.empty(shape, device="meta") for shape in self.shapes]
        self._decoded: tuple[Tensor, Tensor, list[Tensor]] | None = None

    def cut(self, values: Tensor) -> list[Tensor]:
        """Views of `values` [count] as the tensors."""
        return list(torch._C._nn.unflatten_dense_tensors(values, self._like)) if self._like else []

    def decoded(self, into: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The first `count` of `into`, whole and as views; equal for each call with the same memory."""
        if self._decoded is None or self._decoded[0] is not into:
            values = into[: self.count]
            self._decoded = into, values, self.cut(values)
        return self._decoded[1], self._decoded[2]

    def collected(self, tensors: Sequence[Tensor]) -> Tensor:
        """All values concatenated, fp32 [count]; valid until the next call."""
        if self._values.numel() != self.count:
            self._values = torch.empty(self.count)
            self._views = self.cut(self._values)
        if self.is_fp32:
            return torch.cat([tensor.reshape(-1) for tensor in tensors], out=self._values)
        torch._foreach_copy_(self._views, list(tensors))
        return self._values

    def scratch(self) -> Tensor:
        """Scratch memory, fp32 [count]."""
        if self._scratch.numel() != self.count:
            self._scratch = torch.empty(self.count)
        return self._scratch


class Coder:
    """One codec over the tensors of one shard, each with a place; a gradient may be None.

    Pure: equal arguments give equal bytes. It has scratch memory, so one thread may use it at a time. A frame of values
    that are not all finite holds them uncompressed, whatever the codec, and leaves the residual as it was. Lossy codecs
    compute in fp32. ValueError for integer and complex tensors, and for a codec without a kernel.
    """

    def __init__(
        self, codec: Codec, specs: Sequence[Spec], argument: str = Codec.ARGUMENT, feedback: bool | None = None
    ) -> None:
        """`feedback`: whether lost values are added to the next frame; the codec's own setting by default. With
        feedback, decoded values must be nearer to the original than zeros are; without, they must be unbiased."""
        for place, spec in enumerate(specs):
            if not spec.dtype.is_floating_point:
                raise ArgumentError(
                    "contradiction",
                    argument,
                    f"parameter {place} has dtype {str(spec.dtype).removeprefix('torch.')}, which no codec supports",
                    "Use fp32, or register it as a buffer.",
                )
        if not codec.exact and codec.name not in KERNELS:
            kernel = f"Kernel[{type(codec).__name__}]"
            raise ArgumentError(
                "contradiction",
                argument,
                f"{codec.name} has no kernel",
                f"Define a class that derives from {kernel} in the same module.",
            )
        self.codec, self.specs = codec, list(specs)
        self._feedback = codec.error_feedback if feedback is None else feedback
        self._all = (True,) * len(specs)
        self._plans: dict[tuple[bool, ...], _Plan] = {self._all: _Plan(codec, self.specs)}
        self._zstd = Lossless(codec.zstd) if codec.zstd else None

    @property
    def kept(self) -> int:
        """Numbers (fp32) of the residual, which is zeros at first; 0 without error feedback."""
        return self._plans[self._all].kept

    @property
    def most(self) -> int:
        """Bytes of the largest frame: uncompressed values, and a bitmap of the tensors present."""
        plan = self._plans[self._all]
        return HEADER + bitmap_bytes(len(self.specs)) + max(plan.parts.nbytes, plan.plain.nbytes)

    def nbytes(self, present: Sequence[bool] | None = None) -> int:
        """Bytes of a frame with these tensors (None: all), if their values are finite; with zstd an upper limit."""
        where = self._all if present is None else tuple(present)
        return HEADER + self._bitmap(where) + self._plan(where).parts.nbytes

    @torch.no_grad()
    def encode(
        self, tensors: Sequence[Tensor | None], residual: Tensor | None, draw: int = 0, into: Tensor | None = None
    ) -> Encoded:
        """`residual` [kept], fp32: what the last `encode` returned; None: no error feedback. It is not changed.

        `draw`: seed of the random numbers, from 0 to below 2**64. `into` [kept]: other memory, for the new residual.
        """
        present = tuple([tensor is not None for tensor in tensors])
        plan, here = self._plan(present), [tensor for tensor in tensors if tensor is not None]
        start, flags = HEADER + self._bitmap(present), 0
        frame = torch.empty(start + plan.parts.nbytes, dtype=torch.uint8)
        if not here:  # nothing to encode, and nothing is owed for it
            frame[start:] = 0
            fits, after = True, residual
            if residual is not None and into is not None:
                after = into.copy_(residual)
        elif residual is None:
            fits, after = self._write(plan, frame[start:], here, draw), None
        else:
            assert residual.numel() == self.kept, "the residual belongs to another codec"
            after = torch.empty_like(residual) if into is None else into
            fits = self._write_fed_back(plan, frame[start:], here, present, draw, residual, after)
            if not fits:
                after.copy_(residual)
        if not fits:
            frame, flags = torch.empty(start + plan.plain.nbytes, dtype=torch.uint8), PLAIN
            _fill(frame[start:], plan, here)
        return Encoded(self._finish(frame, present, flags, draw), after)

    def _write(self, plan: _Plan, body: Tensor, tensors: Sequence[Tensor], draw: int) -> bool:
        """Fill the parts; False if a value is not finite."""
        if plan.kernel is None:
            _fill(body, plan, tensors)
            return True
        parts = plan.parts.arrays(body)
        plan.parts.clear_gaps(body)
        if plan.kernel.casts:
            torch._foreach_copy_(plan.cut(parts[0]), list(tensors))
            return stays_finite(self.codec) or finite(parts[0].float())
        return plan.kernel.write(plan.collected(tensors), parts, draw, None, plan.scratch())

    def _write_fed_back(
        self,
        plan: _Plan,
        body: Tensor,
        tensors: Sequence[Tensor],
        present: tuple[bool, ...],
        draw: int,
        before: Tensor,
        after: Tensor,
    ) -> bool:
        """Fill the parts with the tensors plus the residual `before`, and `after` with the new residual."""
        assert plan.kernel is not None, "an exact codec keeps no residual"
        parts, whole = plan.parts.arrays(body), present == self._all
        plan.parts.clear_gaps(body)
        values, count = plan.collected(tensors), plan.count
        values.add_(before[:count] if whole else self._gather(before, present))
        owed, warm = after[:count] if whole else plan.scratch(), None
        if not whole:
            after.copy_(before)
        elif plan.kept > count:
            warm = after[count:].copy_(before[count:])
        if not plan.kernel.write(values, parts, draw, warm, owed):
            return False
        plan.kernel.read(parts, owed, draw, feedback=True)
        torch.sub(values, owed, out=owed)
        if not whole:
            self._scatter(owed, after, present)
        return finite(owed)

    @torch.no_grad()
    def decode(self, frame: Tensor, into: Tensor | None = None) -> list[Tensor | None]:
        """The tensors in a frame, of their shapes and types; None for those that are absent.

        They lie in `into` (fp32 [numbers of all tensors]) if that is given and the type is fp32; in the frame itself if
        it is uncompressed; else in new memory. FrameError, before memory is allocated, for a frame of another codec or
        other tensors.
        """
        head = read_head(frame, _NUMBERS.get(self.codec.name, _OWN), len(self.specs))
        present = self._presence(frame, head)
        plan, start = self._plan(present), HEADER + self._bitmap(present)
        parts = plan.plain if head.flags & PLAIN else plan.parts
        if head.plain != start - HEADER + parts.nbytes:
            raise FrameError(f"frame: has {head.plain} uncompressed bytes instead of {start - HEADER + parts.nbytes}")
        body = self._unpacked(frame[start:], parts.nbytes) if head.flags & PACKED else frame[start:]
        arrays = parts.arrays(body)
        if not plan.shapes:
            return [None] * len(present)
        if plan.kernel is None or head.flags & PLAIN:
            return self._placed([v.view(s) for v, s in zip(arrays, plan.shapes, strict=True)], present)
        if into is None:
            values = torch.empty(plan.count)
            tensors = plan.cut(values)
        else:
            values, tensors = plan.decoded(into)
        plan.kernel.read(arrays, values, head.draw, self._feedback)
        if not plan.is_fp32:
            tensors = [v.to(dtype) for v, dtype in zip(tensors, plan.dtypes, strict=True)]
        return self._placed(tensors, present)

    # --- which tensors are there -----------------------------------------------------------------------------------

    def _plan(self, present: tuple[bool, ...]) -> _Plan:
        if present not in self._plans:
            if len(self._plans) == _PLANS:
                self._plans = {self._all: self._plans[self._all]}
            specs = [spec for spec, here in zip(self.specs, present, strict=True) if here]
            self._plans[present] = _Plan(self.codec, specs)
        return self._plans[present]

    def _bitmap(self, present: tuple[bool, ...]) -> int:
        return 0 if present == self._all else bitmap_bytes(len(present))

    def _presence(self, frame: Tensor, head: FrameHead) -> tuple[bool, ...]:
        if not head.flags & PARTIAL:
            return self._all
        size = bitmap_bytes(len(self.specs))
        if frame.numel() < HEADER + size:
            raise FrameError(f"frame: has {frame.numel()} bytes, too few for its bitmap")
        bits = int.from_bytes(frame[HEADER : HEADER + size].numpy().tobytes(), "little")
        present = tuple(bool(bits >> place & 1) for place in range(len(self.specs)))
        if bits >> len(self.specs) or present == self._all:
            raise FrameError("frame: its bitmap lists more tensors than there are")
        return present

    def _placed(self, tensors: Sequence[Tensor], present: tuple[bool, ...]) -> list[Tensor | None]:
        if present == self._all:
            return list(tensors)
        remaining = iter(tensors)
        return [next(remaining) if is_present else None for is_present in present]

    def _pieces(self, memory: Tensor, present: tuple[bool, ...]) -> list[Tensor]:
        pieces = torch.split(memory[: self._plans[self._all].count], self._plans[self._all].lengths)
        return [piece for piece, is_present in zip(pieces, present, strict=True) if is_present]

    def _gather(self, memory: Tensor, present: tuple[bool, ...]) -> Tensor:
        pieces = self._pieces(memory, present)
        return torch.cat(pieces) if pieces else torch.empty(0)

    def _scatter(self, owed: Tensor, memory: Tensor, present: tuple[bool, ...]) -> None:
        pieces = self._pieces(memory, present)
        for piece, new in zip(pieces, torch.split(owed, [piece.numel() for piece in pieces]), strict=True):
            piece.copy_(new)

    # --- bytes -----------------------------------------------------------------------------------------------------

    def _finish(self, frame: Tensor, present: tuple[bool, ...], flags: int, draw: int) -> Tensor:
        """Write header and bitmap; compress the rest if that makes it smaller."""
        start, size = HEADER + self._bitmap(present), frame.numel() - HEADER
        if start > HEADER:
            bits = sum(1 << place for place, here in enumerate(present) if here)
            frame[HEADER:start] = torch.tensor(list(bits.to_bytes(start - HEADER, "little")), dtype=torch.uint8)
            flags |= PARTIAL
        if self._zstd is not None and frame.numel() > start:
            packed = self._zstd.pack(frame[start:].numpy().data)
            if len(packed) < frame.numel() - start:
                frame = torch.cat([frame[:start], torch.frombuffer(bytearray(packed), dtype=torch.uint8)])
                flags |= PACKED
        head = FrameHead(_NUMBERS.get(self.codec.name, _OWN), flags, len(present), draw, size, frame.numel() - HEADER)
        write_head(frame, head)
        return frame

    def _unpacked(self, packed: Tensor, size: int) -> Tensor:
        if self._zstd is None:
            raise FrameError("frame: compressed by zstd, which this codec does not use")
        return torch.frombuffer(bytearray(self._zstd.unpack(packed.numpy().data, size)), dtype=torch.uint8)


def _fill(body: Tensor, plan: _Plan, tensors: Sequence[Tensor]) -> None:
    """Fill the parts with the values uncompressed."""
    plan.plain.clear_gaps(body)
    views = [view.view(shape) for view, shape in zip(plan.plain.arrays(body), plan.shapes, strict=True)]
    torch._foreach_copy_(views, list(tensors))
