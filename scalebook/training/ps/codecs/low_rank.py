"""PowerSGD: a matrix as the product of two thin ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from scalebook.training.ps.codecs.kernels import Kernel, finite, generator
from scalebook.training.ps.policy.codecs import PowerSgd
from scalebook.training.ps.policy.frames import Shape, numel


class PowerSgdKernel(Kernel[PowerSgd]):
    """P = orthonormal columns of M Q, then Q = M^T P; what is decoded is P Q^T, the projection of M on P's columns.

    Q is the last one where the sender keeps it, else drawn.
    """

    def __init__(self, codec: PowerSgd, shapes: Sequence[Shape]) -> None:
        super().__init__(codec, shapes)
        self._sizes = [codec.matrix(shape) for shape in shapes]
        self._lengths = [numel([shape]) for shape in shapes]

    def write(self, values: Tensor, parts: list[Tensor], draw: int, kept: Tensor | None, scratch: Tensor) -> bool:
        if not finite(values):
            return False
        lefts, rights, rest = parts
        drawn = None
        if kept is None or not bool(kept.any()):
            drawn = torch.empty_like(rights).normal_(generator=generator(draw))
        before = kept if drawn is None else drawn
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
        if kept is not None:
            kept.copy_(rights)
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
