"""Gradients and states of which each worker has a part: clipped as if they were whole, gathered, divided again.

Torch's own `clip_grad_norm_` refuses a model in which some parameters are split and others are not, or in different
ways. Checkpoints have whole tensors, so that they can be loaded by any strategy and into any other split.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

CKPT = "ckpt_path"
EPSILON = 1e-6
"""As in `torch.nn.utils.clip_grad_norm_`."""


Norm = Callable[[list[Tensor]], Tensor]


def clip_by_norm(parameters: Iterable[Tensor], largest: float, norm: Norm | None = None) -> None:
    """Scale all gradients, in place, so that their common norm is at most `largest`, as if no parameter were split. All
    workers must call it. `norm`: in place of `total_norm`, if it is of other gradients too."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if norm is None and not gradients:
        return
    factor = (largest / ((norm or total_norm)(gradients) + EPSILON)).clamp(max=1.0)
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
    assert not any(gradient.placements[dim].is_partial() for dim in split), "the gradient has not been summed yet"
    return tuple(mesh.get_group(dim) for dim in split)


def whole(state: Any, keeps: bool) -> Any:
    """A state (nested dicts and lists) with whole tensors on the CPU in place of parts. All workers must call it;
    `keeps`: this one gets the values, others get empty tensors, so that only one holds a whole model."""

    def gathered(part: DTensor) -> Tensor:
        full = _gathered(part)
        return full.cpu() if keeps else full.new_empty(0, device="cpu")

    return tree_map_only(DTensor, gathered, state)


def _gathered(part: DTensor) -> Tensor:
    """The sum over workers of tensors that have zeros where others have values: exact for any layout, which torch's
    `full_tensor` warns that it is not where both dimensions split the same rows."""
    mesh, local = part.device_mesh, part.to_local().detach()
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    full: Tensor = local.new_zeros(part.shape)
    if not any(
        place and placement.is_replicate() for place, placement in zip(coordinate, part.placements, strict=True)
    ):
        full[_own_part(part)] = local
    for dim in range(mesh.ndim):
        dist.all_reduce(full, group=mesh.get_group(dim))
    return full


def _own_part(like: DTensor) -> tuple[slice, ...]:
    shape, offset = compute_local_shape_and_global_offset(like.shape, like.device_mesh, like.placements)
    return tuple(slice(first, first + length) for first, length in zip(offset, shape, strict=True))


def weights_in_parts(weights: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Whole weights from a checkpoint, as the parts that `own`, this worker's state, has of them. Names and shapes are
    left to `load_state_dict`, which says what does not fit."""
    return {name: _as_part(value, own.get(name)) for name, value in weights.items()}


def load_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Load a whole state of the optimizer, as torch's `state_dict` has it, into this worker's parts.

    ValueError if a state that belongs to a split parameter has another shape than it: how to split it is not known.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=False))  # torch says which groups do not fit
    state = {
        number: {key: _state_in_part(key, value, by_number.get(number)) for key, value in of_one.items()}
        for number, of_one in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})


def _state_in_part(key: str, value: Any, parameter: Tensor | None) -> Any:
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if value.shape != parameter.shape:
        raise ValueError(
            f"{CKPT}: the optimizer's state {key} cannot be split, because its shape {list(value.shape)} differs from "
            f"the shape of the split parameter, {list(parameter.shape)}. Resume with the strategy that wrote the "
            "checkpoint, or use an optimizer whose state has the same shape as the parameter."
        )
    return _as_part(value, parameter)


def _as_part(value: Any, like: Any) -> Any:
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    part = value[_own_part(like)].detach().to(like.device, copy=True)
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
