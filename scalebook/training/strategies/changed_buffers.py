"""Which buffers of a model training changes, found by looking at them while it trains."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedBuffer

STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Buffer:
    """One of a model's, by its place there: a forward pass may put another tensor in it."""

    name: str
    module: Module
    key: str
    shape: torch.Size
    dtype: torch.dtype

    @property
    def now(self) -> Tensor | None:
        """The tensor that is there now."""
        return self.module._buffers.get(self.key)

    @property
    def is_statistic(self) -> bool:
        """Whether it is a running mean or variance, which nothing reads while it trains."""
        return isinstance(self.module, _NormBase) and self.key in STATISTICS

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    @property
    def is_cache(self) -> bool:
        """Whether no checkpoint has it."""
        return self.key in self.module._non_persistent_buffers_set

    @property
    def has_its_layout(self) -> bool:
        now = self.now
        return now is not None and now.layout == torch.strided and (now.shape, now.dtype) == (self.shape, self.dtype)

    @property
    def first(self) -> str:
        """What it was when it was found, in words."""
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def __str__(self) -> str:
        now = self.now
        return "None" if now is None else f"{str(now.dtype).removeprefix('torch.')} {list(now.shape)}"


def buffers_of(model: Module) -> list[Buffer]:
    """Those that have values; of several names of one tensor the first. Running statistics come first, then by type,
    so that what is alike lies together."""
    seen: set[int] = set()
    found: list[Buffer] = []
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is None or id(buffer) in seen or isinstance(buffer, UninitializedBuffer):
                continue
            seen.add(id(buffer))
            if buffer.layout == torch.strided:
                name = f"{prefix}.{key}" if prefix else key
                found.append(Buffer(name, module, key, buffer.shape, buffer.dtype))
    return sorted(found, key=lambda one: (not one.is_statistic, str(one.dtype)))  # stable


class Changes:
    """Watches buffers for changes that training makes.

    Each look asks which tensor is there and how often torch has written into it, which costs a microsecond a buffer.
    What is written through `.data` only the values show: they are compared after 1, 2, 4, 8, ... looks.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._unchanged = dict(enumerate(buffers))
        self._marks: dict[int, tuple[Tensor | None, int]] = {}
        self._digests: dict[int, int] = {}
        self._looks = 0

    def note(self) -> None:
        """What changes from now on counts: at the start, and after a validation, which may have buffers of its own."""
        for number, buffer in self._unchanged.items():
            mark = _mark(buffer.now)
            if not self._same(number, mark):
                self._marks[number], self._digests[number] = mark, digest(buffer.now)

    def look(self) -> list[int]:
        """The numbers of those that have changed since, each said once."""
        self._looks += 1
        thorough = self._looks & (self._looks - 1) == 0
        found = [
            number
            for number, buffer in self._unchanged.items()
            if not self._same(number, _mark(buffer.now))
            or (thorough and digest(buffer.now) != self._digests.get(number))
        ]
        for number in found:
            self.know(number)
        return found

    def know(self, number: int) -> None:
        """This one need not be watched any more."""
        for kept in (self._unchanged, self._marks, self._digests):
            kept.pop(number, None)

    def _same(self, number: int, mark: tuple[Tensor | None, int]) -> bool:
        known = self._marks.get(number)
        return known is not None and known[0] is mark[0] and known[1] == mark[1]


def digest(buffer: Tensor | None) -> int:
    """Of the values, to a bit."""
    if buffer is None or not buffer.numel() or buffer.layout != torch.strided:
        return 0
    values = buffer.detach().resolve_conj()
    flat = torch.view_as_real(values) if values.is_complex() else values
    return zlib.crc32(flat.reshape(-1).cpu().view(torch.uint8).numpy().data)


def _mark(buffer: Tensor | None) -> tuple[Tensor | None, int]:
    return buffer, -1 if buffer is None or buffer.is_inference() else buffer._version
