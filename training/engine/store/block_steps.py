"""Steps of torch's SGD, Adam and AdamW from version to version in one pass over the memory, with the same bits.

An optimizer that steps in place needs a copy of the newest version and state, which is one pass over memory to copy and
several to step. These optimizers are elementwise, so their step is made block by block: neighbours in memory form one
block, and torch's own function steps on it while it is in the cache. For Adam and AdamW without `fused`, torch's
operations are written out, from old to new without a copy, if they give torch's bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.store.optimizer_state import SharedState, Slot
from scalebook.training.engine.store.store_layout import ShardPlan

BLOCK: Final = 2**20
"""Elements of parameters, gradient and state in one block, 4 MB in fp32. Fewer cost more calls, more leave the
cache."""
LINE: Final = 64
"""A block is a multiple of so many elements, so that the rest that vector instructions leave is the same as without
blocks."""


class _Piece(NamedTuple):
    """The same elements of a parameter, its gradient and its state, old and new, by the names of the state."""

    target: Tensor
    source: Tensor
    gradient: Tensor
    state: list[tuple[Tensor, Tensor]]
    step: Tensor | None  # how many steps it has made, if that is counted


class BlockSteps:
    """The block-wise steps of one shard; `of` says whether its optimizer allows them."""

    def __init__(self, optimizer: Optimizer, state: SharedState, views: Sequence[Sequence[Tensor]]) -> None:
        self._optimizer, self._state, self._views = optimizer, state, views
        self._slots: list[dict[str, Slot]] = [{} for _ in views[0]]
        for place, slots in state.by_place.items():
            self._slots[place] = {slot.entry.name: slot for slot in slots}
        arrays = [[view, *_arrays(slots, 0)] for view, slots in zip(views[0], self._slots, strict=True)]
        self._joins = [False, *(_are_one(*pair) for pair in pairwise(arrays))]
        """By place, whether all of it lies directly after the place before."""
        self._room = torch.empty(0)

    @classmethod
    def of(
        cls, optimizer: Optimizer, plan: ShardPlan, state: SharedState, views: Sequence[Sequence[Tensor]]
    ) -> "BlockSteps | None":
        """None for another optimizer, or if more than its state is kept."""
        if type(optimizer) not in (SGD, Adam, AdamW) or not plan.state_entries:
            return None
        if plan.squares.fields or plan.notes.fields or plan.tables or plan.forms:
            return None
        made = cls(optimizer, state, views)
        like = all(made._is_alike(view, slots) for view, slots in zip(views[0], made._slots, strict=True))
        return made if like else None

    @staticmethod
    def _is_alike(view: Tensor, slots: Mapping[str, Slot]) -> bool:
        buffers = [slot.memory[0] for name, slot in slots.items() if name != "step"]
        same = all(
            (buffer.shape, buffer.stride(), buffer.dtype) == (view.shape, view.stride(), view.dtype)
            for buffer in buffers
        )
        return same and view.is_floating_point() and all(slot.entry.number is None for slot in slots.values())

    def can(self, newest: int, gradients: Sequence[Tensor | None], groups: Groups) -> bool:
        """Whether a step with these gradients can be made in blocks: not the first step of a parameter, which makes its
        state. Single-threaded only: several threads meet after each call, and a block waits where another process has a
        core."""
        if torch.get_num_threads() > 1:
            return False
        if not all(map(_is_usual, groups)):
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
        """Make version and state `target` and 1 - `newest`, with the hyper-parameters of `groups`."""
        place = 0
        for own, pushed in zip(self._optimizer.param_groups, groups, strict=True):
            group, places = {**own, **pushed}, range(place, place + len(own["params"]))
            writes_out = self._writes_out(group, places)
            for block in self._blocks(source, target, newest, gradients, places):
                if writes_out:
                    self._adam(block, group)
                    continue
                torch._foreach_copy_([one.target for one in block], [one.source for one in block])
                if pairs := [pair for one in block for pair in one.state]:
                    torch._foreach_copy_([new for _, new in pairs], [old for old, _ in pairs])
                self._step_on(block, group)
            for index in places:
                self._finish(index, newest, gradients[index] is not None)
                if gradients[index] is None:
                    self._views[target][index].copy_(self._views[source][index])
            place = places.stop

    def _blocks(
        self, source: int, target: int, newest: int, gradients: Sequence[Tensor | None], places: range
    ) -> Iterator[list[_Piece]]:
        """The blocks of all parameters with a gradient: several small ones, or a part of a large one or of
        neighbours."""
        block, full = list[_Piece](), 0
        for place, size in self._rows(newest, gradients, places):
            gradient, slots = gradients[place], self._slots[place]
            assert gradient is not None
            most = BLOCK // (2 + len(slots.keys() - {"step"})) // LINE * LINE
            count = slots["step"].memory[newest] if "step" in slots else None
            tensors = [self._views[target][place], self._views[source][place], gradient]
            for pair in zip(_arrays(slots, newest), _arrays(slots, 1 - newest), strict=True):
                tensors += pair
            if size > most or size > gradient.numel():
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

    def _rows(self, newest: int, gradients: Sequence[Tensor | None], places: range) -> Iterator[tuple[int, int]]:
        """The first place and the number of elements of each run of neighbours with a gradient and the same number of
        steps."""
        first, size = -1, 0
        for place in places:
            gradient, before = gradients[place], gradients[place - 1] if place > places.start else None
            if gradient is None:
                continue
            if before is not None and self._joins[place] and self._is_next(place, newest, before, gradient):
                size += gradient.numel()
                continue
            if first >= 0:
                yield first, size
            first, size = place, gradient.numel()
        if first >= 0:
            yield first, size

    def _is_next(self, place: int, newest: int, before: Tensor, gradient: Tensor) -> bool:
        steps = [slots["step"].memory[newest] for slots in self._slots[place - 1 : place + 1] if "step" in slots]
        return _are_one([before], [gradient]) and (not steps or float(steps[0]) == float(steps[1]))

    def _writes_out(self, group: Mapping[str, Any], places: range) -> bool:
        """Whether `_adam` steps these parameters."""
        if type(self._optimizer) is SGD or group["fused"] or group["amsgrad"] or group["maximize"]:
            return False
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            return False
        return all(is_torchs_adam(dtype) for dtype in {self._views[0][place].dtype for place in places})

    def _adam(self, block: Sequence[_Piece], group: Mapping[str, Any]) -> None:
        for one in block:
            if self._room.numel() < one.target.numel() or self._room.dtype != one.target.dtype:
                self._room = torch.empty(one.target.numel(), dtype=one.target.dtype)
            room = self._room[: one.target.numel()].view(-1)
            assert one.step is not None
            adam_from(one, group, room.as_strided(one.target.shape, one.target.stride()))

    def _step_on(self, block: Sequence[_Piece], group: Mapping[str, Any]) -> None:
        targets, gradients = [one.target for one in block], [one.gradient for one in block]
        states = [[new for _, new in one.state] for one in block]
        common = {key: group[key] for key in ("lr", "weight_decay", "maximize")}
        fused = bool(group["fused"])
        if type(self._optimizer) is SGD:
            momenta: list[Tensor | None] = [one[0] for one in states]
            more = {key: group[key] for key in ("momentum", "dampening", "nesterov")}
            sgd(targets, gradients, momenta, foreach=False, fused=fused, **common, **more)
            return
        most = [one[2] for one in states] if group["amsgrad"] else []
        (beta1, beta2), steps = group["betas"], [one.step for one in block if one.step is not None]
        more = {key: group[key] for key in ("amsgrad", "eps", "decoupled_weight_decay")}
        adam(
            targets, gradients, [one[0] for one in states], [one[1] for one in states], most, steps,
            foreach=False, fused=fused, beta1=beta1, beta2=beta2, **common, **more,
        )  # fmt: skip

    def _finish(self, place: int, newest: int, has_stepped: bool) -> None:
        """Copy what is no array: the step count; and all state of a parameter that made no step."""
        for name, slot in self._slots[place].items():
            if name == "step":
                slot.memory[1 - newest].copy_(slot.memory[newest] + int(has_stepped))
            elif not has_stepped:
                slot.memory[1 - newest].copy_(slot.memory[newest])


def adam_from(one: _Piece, group: Mapping[str, Any], room: Tensor) -> None:
    """`torch.optim.adam`'s operations on one tensor, from old to new (Kingma and Ba, 2015; decay as Loshchilov and
    Hutter, 2019); `room` is scratch memory of the tensor's shape."""
    (old_mean, mean), (old_square, square) = one.state
    (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
    step = float(one.step) + 1.0  # type: ignore[arg-type]  # counted
    torch.lerp(old_mean, one.gradient, 1 - beta1, out=mean)
    torch.mul(old_square, beta2, out=square)
    square.addcmul_(one.gradient, one.gradient, value=1 - beta2)
    torch.sqrt(square, out=room)
    room.div_((1 - beta2**step) ** 0.5).add_(group["eps"])
    source = torch.mul(one.source, 1 - lr * decay, out=one.target) if decay else one.source
    torch.addcdiv(source, mean, room, value=-(lr / (1 - beta1**step)), out=one.target)


@lru_cache
def is_torchs_adam(dtype: torch.dtype) -> bool:
    """Whether `adam_from` gives the bits of the installed torch, which may change: tests 16,384 numbers of all sizes,
    three steps, with and without decay."""
    chance = torch.Generator().manual_seed(1)

    def some() -> Tensor:
        return (
            torch.randn(2**14, generator=chance)
            .mul_(10.0 ** torch.randint(-6, 4, (2**14,), generator=chance))
            .to(dtype)
        )

    for decay in (0.0, 0.01):
        group = {"lr": 0.0123, "betas": (0.9, 0.997), "eps": 1e-8, "weight_decay": decay}
        theirs, mine = [some(), some(), some().abs()], [some(), some(), some().abs()]
        for one, other in zip(mine, theirs, strict=True):
            one.copy_(other)
        for count in range(3):
            gradient, step = some(), torch.tensor(float(count))
            new = [torch.empty_like(one) for one in mine]
            state = [(mine[1], new[1]), (mine[2], new[2])]
            adam_from(_Piece(new[0], mine[0], gradient, state, step), group, torch.empty_like(gradient))
            adam(
                [theirs[0]], [gradient], [theirs[1]], [theirs[2]], [], [step], foreach=False, fused=False,
                amsgrad=False, beta1=0.9, beta2=0.997, lr=0.0123, weight_decay=decay, eps=1e-8, maximize=False,
                decoupled_weight_decay=True,
            )  # fmt: skip
            mine = new
            if not all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True)):
                return False
    return True


def _arrays(slots: Mapping[str, Slot], which: int) -> list[Tensor]:
    """The state tensors of one parameter, in the order of their names, without the step count."""
    return [slot.memory[which] for name, slot in slots.items() if name != "step"]


def _are_one(before: Sequence[Tensor], behind: Sequence[Tensor]) -> bool:
    """Whether each tensor of the second lies directly after its counterpart, so that both can be computed as one with
    the same bits."""
    return len(before) == len(behind) and all(
        a.dtype == b.dtype
        and a.numel() % LINE == b.numel() % LINE == 0
        and a.data_ptr() + a.nbytes == b.data_ptr()
        and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        for a, b in zip(before, behind, strict=True)
    )


def _is_usual(group: Mapping[str, Any]) -> bool:
    """Whether torch computes with these hyper-parameters tensor by tensor, or all in one kernel."""
    numbers = [group["lr"], *group.get("betas", ())]
    return (
        all(isinstance(number, float | int) for number in numbers)
        and not group["foreach"]
        and not group["differentiable"]
        and not group.get("capturable")
        and group.get("momentum") != 0
    )
