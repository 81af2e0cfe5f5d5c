"""Clips gradients of which a worker has a part.

Torch's own `clip_grad_norm_` refuses a model in which some parameters are split and others are not, or in different
ways.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

EPSILON = 1e-6
"""As in `torch.nn.utils.clip_grad_norm_`."""


def clip_by_norm(parameters: Iterable[Tensor], largest: float) -> None:
    """Scale all gradients, in place, so that their common norm is at most `largest`, as if no parameter were split. All
    workers must call it."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    factor = (largest / (total_norm(gradients) + EPSILON)).clamp(max=1.0)
    for gradient in gradients:
        part_of(gradient).mul_(factor)


def clip_by_value(parameters: Iterable[Tensor], largest: float) -> None:
    """Bring each value of each gradient, in place, into -largest ... largest."""
    for parameter in parameters:
        if parameter.grad is not None:
            part_of(parameter.grad).clamp_(-largest, largest)


def total_norm(gradients: Iterable[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, 0-dimensional, the same in all workers."""
    squares: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        squares[_shared_among(gradient)].append(torch.linalg.vector_norm(part_of(gradient)).square())
    total = []
    for groups, parts in squares.items():
        of_these = torch.stack(parts).sum()
        for group in groups:
            dist.all_reduce(of_these, group=group)
        total.append(of_these)
    return torch.stack(total).sum().sqrt()


def part_of(tensor: Tensor) -> Tensor:
    """This worker's values of a tensor, without a copy; all of them where it is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _shared_among(gradient: Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The groups of workers over which a gradient is split."""
    if not isinstance(gradient, DTensor):
        return ()
    mesh = gradient.device_mesh
    split = [dim for dim, placement in enumerate(gradient.placements) if placement != Replicate()]
    assert not any(gradient.placements[dim].is_partial() for dim in split), "a gradient is a sum still to be made"
    return tuple(mesh.get_group(dim) for dim in split)
