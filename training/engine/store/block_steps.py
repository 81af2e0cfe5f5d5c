"""Steps of torch's SGD, Adam and AdamW from version to version in one pass over the memory, with the same bits.

An optimizer that steps in place needs a copy of the newest version and state, which is one pass over memory to copy and
several to step. These optimizers are elementwise, so their step is made block by block, while the block is in the
cache: a part of a large parameter, neighbours in memory taken as one, or several small parameters, over which torch
loops. For Adam and AdamW without `fused`, torch's operations are written out, if they give torch's bits; a block of one
tensor then needs no copy.
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


class _Block(NamedTuple):
    """Parts of parameters, with their gradients and state. All lists have the same length and order; `state` has a pair
    of lists, old and new, for each name."""

    targets: list[Tensor]
    sources: list[Tensor]
    gradients: list[Tensor]
    state: list[tuple[list[Tensor], list[Tensor]]]
    steps: list[Tensor]
    """How many steps each has made, where that is counted."""


def _block(lists: Sequence[list[Tensor]], steps: list[Tensor]) -> _Block:
    """`lists`: targets, sources, gradients, then old and new of each state name."""
    targets, sources, gradients, *state = lists
    return _Block(targets, sources, gradients, list(zip(state[::2], state[1::2], strict=True)), steps)


class BlockSteps:
    """The block-wise steps of one shard; `of` says whether its optimizer allows them."""

    def __init__(self, optimizer: Optimizer, state: SharedState, views: Sequence[Sequence[Tensor]]) -> None:
        self._optimizer, self._state, self._views = optimizer, state, views
        self._slots: list[dict[str, Slot]] = [{} for _ in views[0]]
        for place, slots in state.by_place.items():
            self._slots[place] = {slot.entry.name: slot for slot in slots}
        names = {name for slots in self._slots for name in slots}
        self._memory: list[dict[str, list[Any]]] = [
            {name: [slots[name].memory[which] if name in slots else None for slots in self._slots] for name in names}
            for which in (0, 1)
        ]
        """For state 0 and 1: the tensors of each entry, by its name and then by place; None where there is none."""
        self._numel = [view.numel() for view in views[0]]
        arrays = [[view, *_arrays(slots)] for view, slots in zip(views[0], self._slots, strict=True)]
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
        start = 0
        for own, pushed in zip(self._optimizer.param_groups, groups, strict=True):
            group, places = {**own, **pushed}, range(start, start + len(own["params"]))
            start = places.stop
            stepped = [place for place in places if gradients[place] is not None]
            if stepped:
                writes_out = self._writes_out(group, places)
                for block in self._blocks(source, target, newest, gradients, stepped):
                    (self._adam if writes_out else self._call_torch)(block, group)
            self._finish(source, target, newest, places, stepped)

    def _blocks(
        self, source: int, target: int, newest: int, gradients: Sequence[Tensor | None], stepped: Sequence[int]
    ) -> Iterator[_Block]:
        """The blocks of these parameters: several small ones, or a part of a large one or of neighbours."""
        olds, news = self._memory[newest], self._memory[1 - newest]
        names = [name for name in self._slots[stepped[0]] if name != "step"]
        counts = olds.get("step")
        most = BLOCK // (2 + len(names)) // LINE * LINE
        rows = [(place, self._numel[place]) for place in stepped]
        if sum(size for _, size in rows) > most:
            rows = list(self._rows(newest, gradients, stepped))
        columns: list[Sequence[Any]] = [self._views[target], self._views[source], gradients]
        columns += [memory[name] for name in names for memory in (olds, news)]
        lists: list[list[Any]] = [[] for _ in columns]
        steps, full = list[Tensor](), 0
        for place, size in rows:
            tensors = [column[place] for column in columns]
            if size > most or size > self._numel[place]:
                tensors = [tensor.as_strided((size,), (1,)) for tensor in tensors]
            for start in range(0, size, most) or [0]:
                mine = tensors if size <= most else [tensor[start : start + most] for tensor in tensors]
                part = min(most, size - start)
                if full and full + part > most:
                    yield _block(lists, steps)
                    lists, steps, full = [[] for _ in columns], [], 0
                for one, tensor in zip(lists, mine, strict=True):
                    one.append(tensor)
                if counts is not None:
                    steps.append(counts[place])
                full += part
        yield _block(lists, steps)

    def _rows(
        self, newest: int, gradients: Sequence[Tensor | None], stepped: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """The first place and the number of elements of each run of neighbours with the same number of steps."""
        first, size = stepped[0], self._numel[stepped[0]]
        for before, place in pairwise(stepped):
            if not (before == place - 1 and self._joins[place] and self._is_next(place, newest, gradients)):
                yield first, size
                first, size = place, 0
            size += self._numel[place]
        yield first, size

    def _is_next(self, place: int, newest: int, gradients: Sequence[Any]) -> bool:
        counts = self._memory[newest].get("step")
        same = counts is None or float(counts[place - 1]) == float(counts[place])
        return same and _are_one([gradients[place - 1]], [gradients[place]])

    def _writes_out(self, group: Mapping[str, Any], places: range) -> bool:
        """Whether `_adam` steps these parameters."""
        if type(self._optimizer) is SGD or group["fused"] or group["amsgrad"] or group["maximize"]:
            return False
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            return False
        if any("max_exp_avg_sq" in self._slots[place] for place in places):  # amsgrad was on before
            return False
        return all(is_torchs_adam(dtype) for dtype in {self._views[0][place].dtype for place in places})

    def _adam(self, block: _Block, group: Mapping[str, Any]) -> None:
        if len(block.targets) > 1:
            adam_of_several(block, group)
            return
        target = block.targets[0]
        if self._room.numel() < target.numel() or self._room.dtype != target.dtype:
            self._room = torch.empty(target.numel(), dtype=target.dtype)
        room = self._room[: target.numel()].view(-1)
        adam_of_one(block, group, room.as_strided(target.shape, target.stride()))

    def _call_torch(self, block: _Block, group: Mapping[str, Any]) -> None:
        torch._foreach_copy_(block.targets, block.sources)
        for old, new in block.state:
            torch._foreach_copy_(new, old)
        state = [new for _, new in block.state]
        common = {key: group[key] for key in ("lr", "weight_decay", "maximize")}
        fused = bool(group["fused"])
        if type(self._optimizer) is SGD:
            momenta: list[Tensor | None] = [*state[0]]
            more = {key: group[key] for key in ("momentum", "dampening", "nesterov")}
            # The foreach path makes the same operations, but with Nesterov's momentum it changes the gradients.
            foreach = not (fused or group["nesterov"])
            sgd(block.targets, block.gradients, momenta, foreach=foreach, fused=fused, **common, **more)
            return
        most = state[2] if group["amsgrad"] else []
        (beta1, beta2), steps = group["betas"], [count.clone() for count in block.steps]
        more = {key: group[key] for key in ("amsgrad", "eps", "decoupled_weight_decay")}
        adam(
            block.targets, block.gradients, state[0], state[1], most, steps,
            foreach=False, fused=fused, beta1=beta1, beta2=beta2, **common, **more,
        )  # fmt: skip

    def _finish(self, source: int, target: int, newest: int, places: range, stepped: Sequence[int]) -> None:
        """Count the steps of those that made one, and copy all of the others."""
        olds, news = self._memory[newest], self._memory[1 - newest]
        if stepped and "step" in olds:
            counts = [news["step"][place] for place in stepped]
            torch._foreach_copy_(counts, [olds["step"][place] for place in stepped])
            torch._foreach_add_(counts, 1)
        for place in sorted(set(places).difference(stepped)):
            self._views[target][place].copy_(self._views[source][place])
            for slot in self._slots[place].values():
                slot.memory[1 - newest].copy_(slot.memory[newest])


def adam_of_one(block: _Block, group: Mapping[str, Any], room: Tensor) -> None:
    """`torch.optim.adam`'s operations on a single tensor, from old to new (Kingma and Ba, 2015; decay as Loshchilov and
    Hutter, 2019); `room` is scratch memory of the tensor's shape."""
    target, old, gradient = block.targets[0], block.sources[0], block.gradients[0]
    ([old_mean], [mean]), ([old_square], [square]) = block.state
    (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
    step = float(block.steps[0]) + 1.0
    torch.lerp(old_mean, gradient, 1 - beta1, out=mean)
    torch.mul(old_square, beta2, out=square)
    square.addcmul_(gradient, gradient, value=1 - beta2)
    torch.sqrt(square, out=room)
    room.div_((1 - beta2**step) ** 0.5).add_(group["eps"])
    source = torch.mul(old, 1 - lr * decay, out=target) if decay else old
    torch.addcdiv(source, mean, room, value=-(lr / (1 - beta1**step)), out=target)


def adam_of_several(block: _Block, group: Mapping[str, Any]) -> None:
    """The same operations on lists of tensors: torch loops over them, not Python."""
    (old_means, means), (old_squares, squares) = block.state
    (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
    steps = [float(count) + 1.0 for count in block.steps]
    torch._foreach_copy_([*block.targets, *means, *squares], [*block.sources, *old_means, *old_squares])
    torch._foreach_lerp_(means, block.gradients, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, block.gradients, block.gradients, value=1 - beta2)
    rooms = torch._foreach_sqrt(squares)
    torch._foreach_div_(rooms, [(1 - beta2**step) ** 0.5 for step in steps])
    torch._foreach_add_(rooms, group["eps"])
    if decay:
        torch._foreach_mul_(block.targets, 1 - lr * decay)
    torch._foreach_addcdiv_(block.targets, means, rooms, [-(lr / (1 - beta1**step)) for step in steps])


@lru_cache
def is_torchs_adam(dtype: torch.dtype) -> bool:
    """Whether `adam_of_one` and `adam_of_several` give the bits of the installed torch, which may change: tests 16,384
    numbers of all sizes, three steps, with and without decay."""
    chance = torch.Generator().manual_seed(1)

    def some() -> Tensor:
        return (
            torch.randn(2**14, generator=chance)
            .mul_(10.0 ** torch.randint(-6, 4, (2**14,), generator=chance))
            .to(dtype)
        )

    for decay in (0.0, 0.01):
        group = {"lr": 0.0123, "betas": (0.9, 0.997), "eps": 1e-8, "weight_decay": decay}
        theirs, alone, several = ([one.clone() for one in given] for given in 3 * [[some(), some(), some().abs()]])
        for count in range(3):
            gradient, step = some(), torch.tensor(float(count))
            new = [torch.empty_like(one) for one in alone]
            state = [([old], [fresh]) for old, fresh in zip(alone[1:], new[1:], strict=True)]
            adam_of_one(_Block([new[0]], [alone[0]], [gradient], state, [step]), group, torch.empty_like(gradient))
            both = [torch.empty_like(one) for one in several]
            state = [(2 * [old], [fresh, old.clone()]) for old, fresh in zip(several[1:], both[1:], strict=True)]
            targets = [both[0], several[0].clone()]
            adam_of_several(_Block(targets, 2 * [several[0]], 2 * [gradient], state, 2 * [step]), group)
            adam(
                [theirs[0]], [gradient], [theirs[1]], [theirs[2]], [], [step], foreach=False, fused=False,
                amsgrad=False, beta1=0.9, beta2=0.997, lr=0.0123, weight_decay=decay, eps=1e-8, maximize=False,
                decoupled_weight_decay=True,
            )  # fmt: skip
            alone, several = new, both
            pairs = [*zip(alone, theirs, strict=True), *zip(several, theirs, strict=True)]
            if not all(torch.equal(one, other) for one, other in pairs):
                return False
    return True


def _arrays(slots: Mapping[str, Slot]) -> list[Tensor]:
    """The state tensors of one parameter, in the order of their names, without the step count."""
    return [slot.memory[0] for name, slot in slots.items() if name != "step"]


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
    keys = ("lr", "weight_decay", "eps", "momentum", "dampening")
    numbers = [*(group[key] for key in keys if key in group), *group.get("betas", ())]
    return (
        all(isinstance(number, float | int) for number in numbers)
        and not group["foreach"]
        and not group["differentiable"]
        and not group.get("capturable")
        and group.get("momentum") != 0
    )
