"""Steps of torch's SGD, Adam and AdamW from version to version in one pass over the memory, to the same bits.

An optimizer that steps in place is given a copy of the newest version and state, which goes through memory once to be
made and several times to be stepped on. These optimizers compute number by number, so theirs is made block by block,
and torch's own function steps on the block while it is in the cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.adam import adam
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.optim.sgd import sgd

from scalebook.training.ps.applying.plan import ShardPlan
from scalebook.training.ps.applying.state import SharedState, Slot
from scalebook.training.ps.optimizer.hyper import Groups

BLOCK: Final = 2**20
"""Numbers of parameters, gradient and state together, 4 MB in fp32. Fewer cost calls, more leave the cache."""
LINE: Final = 64
"""Numbers, of which a block is a multiple: what vector instructions leave over is what they would leave of it all."""


class _Piece(NamedTuple):
    """The same numbers of a parameter, of its gradient and its state: old and new by the names of the state."""

    target: Tensor
    source: Tensor
    gradient: Tensor
    state: list[tuple[Tensor, Tensor]]
    step: Tensor | None  # how many steps it has made, if that is counted


class BlockSteps:
    """The steps of one shard whose optimizer can be stepped so; `of` says whether."""

    def __init__(self, optimizer: Optimizer, state: SharedState, views: Sequence[Sequence[Tensor]]) -> None:
        self._optimizer, self._state, self._views = optimizer, state, views
        self._slots: list[dict[str, Slot]] = [{} for _ in views[0]]
        for place, slots in state.by_place.items():
            self._slots[place] = {slot.entry.name: slot for slot in slots}

    @classmethod
    def of(
        cls, optimizer: Optimizer, plan: ShardPlan, state: SharedState, views: Sequence[Sequence[Tensor]]
    ) -> "BlockSteps | None":
        """None for another optimizer, and where more is kept beside its state."""
        if type(optimizer) not in (SGD, Adam, AdamW) or not plan.state_entries:
            return None
        if plan.squares.fields or plan.notes.fields or plan.tables or plan.forms:
            return None
        made = cls(optimizer, state, views)
        like = all(made._is_alike(view, slots) for view, slots in zip(views[0], made._slots, strict=True))
        return made if like else None

    @staticmethod
    def _is_alike(view: Tensor, slots: Mapping[str, Slot]) -> bool:
        kept = [slot.memory[0] for name, slot in slots.items() if name != "step"]
        same = all((one.shape, one.stride(), one.dtype) == (view.shape, view.stride(), view.dtype) for one in kept)
        return same and view.is_floating_point() and all(slot.entry.number is None for slot in slots.values())

    def can(self, newest: int, gradients: Sequence[Tensor | None], groups: Groups) -> bool:
        """Whether a step with these can be made so: not the first of a parameter, which makes its state. By one thread:
        several meet after each call, and where another process has one of their cores a block waits for it."""
        if torch.get_num_threads() > 1:
            return False
        optimizer = self._optimizer
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return False
        if _global_optimizer_pre_hooks or _global_optimizer_post_hooks or not all(map(_is_usual, groups)):
            return False
        present = self._state.present(newest)
        return all(
            gradient is None
            or (
                bool(slots)
                and all(present[slot.index] for slot in slots.values())
                and (gradient.dtype, gradient.stride()) == (view.dtype, view.stride())
            )
            for gradient, view, slots in zip(gradients, self._views[0], self._slots, strict=True)
        )

    def step(self, source: int, target: int, newest: int, gradients: Sequence[Tensor | None], groups: Groups) -> None:
        """Make version and state `target` and 1 - `newest`; the optimizer's groups have these hyper-parameters."""
        place = 0
        for own, given in zip(self._optimizer.param_groups, groups, strict=True):
            group, places = {**own, **given}, range(place, place + len(own["params"]))
            for block in self._blocks(source, target, newest, gradients, places):
                torch._foreach_copy_([one.target for one in block], [one.source for one in block])
                if pairs := [pair for one in block for pair in one.state]:
                    torch._foreach_copy_([new for _, new in pairs], [old for old, _ in pairs])
                self._step_on(block, group)
            for at in places:
                self._finish(at, newest, gradients[at] is not None)
                if gradients[at] is None:
                    self._views[target][at].copy_(self._views[source][at])
            place = places.stop

    def _blocks(
        self, source: int, target: int, newest: int, gradients: Sequence[Tensor | None], places: range
    ) -> Iterator[list[_Piece]]:
        """Of all with a gradient: several small parameters, or a part of a large one."""
        block, full = list[_Piece](), 0
        for place in places:
            gradient, slots = gradients[place], self._slots[place]
            if gradient is None:
                continue
            most = BLOCK // (2 + len(slots.keys() - {"step"})) // LINE * LINE
            kept = [slot.memory for name, slot in slots.items() if name != "step"]
            count = slots["step"].memory[newest] if "step" in slots else None
            tensors = [self._views[target][place], self._views[source][place], gradient]
            tensors += [memory[which] for memory in kept for which in (newest, 1 - newest)]
            size = gradient.numel()
            if size > most:
                tensors = [tensor.as_strided((size,), (1,)) for tensor in tensors]
            for start in range(0, size, most) or [0]:
                mine = tensors if size <= most else [tensor[start : start + most] for tensor in tensors]
                if block and full + mine[0].numel() > most:
                    yield block
                    block, full = [], 0
                state = list(zip(mine[3::2], mine[4::2], strict=True))
                block.append(_Piece(mine[0], mine[1], mine[2], state, None if count is None else count.clone()))
                full += mine[0].numel()
        if block:
            yield block

    def _step_on(self, block: Sequence[_Piece], group: Mapping[str, Any]) -> None:
        targets, gradients = [one.target for one in block], [one.gradient for one in block]
        kept = [[new for _, new in one.state] for one in block]
        common = {key: group[key] for key in ("lr", "weight_decay", "maximize")}
        fused = bool(group["fused"])
        if type(self._optimizer) is SGD:
            momenta: list[Tensor | None] = [one[0] for one in kept]
            more = {key: group[key] for key in ("momentum", "dampening", "nesterov")}
            sgd(targets, gradients, momenta, foreach=False, fused=fused, **common, **more)
            return
        most = [one[2] for one in kept] if group["amsgrad"] else []
        (beta1, beta2), steps = group["betas"], [one.step for one in block if one.step is not None]
        more = {key: group[key] for key in ("amsgrad", "eps", "decoupled_weight_decay")}
        adam(
            targets, gradients, [one[0] for one in kept], [one[1] for one in kept], most, steps,
            foreach=False, fused=fused, beta1=beta1, beta2=beta2, **common, **more,
        )  # fmt: skip

    def _finish(self, place: int, newest: int, has_stepped: bool) -> None:
        """What is no array: the count of its steps; all of its state where it has made none."""
        for name, slot in self._slots[place].items():
            if name == "step":
                slot.memory[1 - newest].copy_(slot.memory[newest] + int(has_stepped))
            elif not has_stepped:
                slot.memory[1 - newest].copy_(slot.memory[newest])


def _is_usual(group: Mapping[str, Any]) -> bool:
    """Whether torch computes with these hyper-parameters a tensor at a time, or all in one kernel."""
    numbers = [group["lr"], *group.get("betas", ())]
    return (
        all(isinstance(number, float | int) for number in numbers)
        and not group["foreach"]
        and not group["differentiable"]
        and not group.get("capturable")
        and group.get("momentum") != 0
    )
