"""Finds what an optimizer keeps between steps, by trial steps on copies, and refuses optimizers that are not
supported."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.group_changes import (
    ROOM,
    ChangedEntries,
    NotedParts,
    can_be_noted,
    images,
    is_scalar,
    noted_text,
    unowned_state,
)
from scalebook.training.engine.store.rebuilt_optimizer import (
    UnfitError,
    counterparts,
    groups_of,
    is_torchs,
    no_hooks,
    original_of,
    parameters_of,
    rebuild,
    step,
    train,
    unfit,
)
from scalebook.training.engine.store.table_optimizer import is_table, trial, trial_gradient
from scalebook.training.engine.store.written_step import lent

_CONSTANT: Final = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)


@dataclass(frozen=True)
class Hole:
    """Where a tensor belongs in a form, and which tensor."""

    number: int


def cut_out(value: Any) -> tuple[Any, list[Tensor]]:
    """Split a value into a form, which has holes instead of tensors, and these tensors in order. TypeError, naming the
    type, for anything but tensors, constants, and lists, tuples or dicts of them."""
    tensors: list[Tensor] = []
    return _cut_out(value, tensors), tensors


def _cut_out(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return Hole(len(tensors) - 1)
    if type(value) in _CONSTANT:
        return value
    if type(value) is dict:
        return {key: _cut_out(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cut_out(item, tensors) for item in value)
    raise TypeError(type(value).__name__)


def filled(form: Any, tensors: Sequence[Tensor]) -> Any:
    """The inverse of `cut_out`, with new containers."""
    if isinstance(form, Hole):
        return tensors[form.number]
    if type(form) is dict:
        return {key: filled(item, tensors) for key, item in form.items()}
    if type(form) in (list, tuple):
        return type(form)(filled(item, tensors) for item in form)
    return form


AT_A_TIME: Final = 32 * 2**20  # bytes of parameters whose state is discovered together
DRY_STEPS: Final = 3  # some optimizers make their state in the first step, some change its type in the second
NUMBERS: Final[Mapping[type, torch.dtype]] = {bool: torch.int64, int: torch.int64, float: torch.float64}


@dataclass(frozen=True)
class StateEntry:
    """One entry that an optimizer keeps for a parameter: a tensor, or a Python number whose type is `number`. `hole`:
    which tensor of a structured value (`FoundState.forms`); None: the value itself."""

    parameter: int
    name: str
    example: Tensor
    number: type | None
    hole: int | None = None


class FoundState(NamedTuple):
    """What an optimizer keeps: tensors and numbers; the forms of other values, by parameter and name; and what is noted
    beside the state of its parameters. `reaches`: whether its step uses the parameters themselves, not only those of
    its param groups."""

    entries: list[StateEntry]
    forms: dict[tuple[int, str], Any]
    noted: NotedParts
    reaches: bool = False


class _Reached(Exception):  # a sign for `discover`
    """A trial step uses a parameter that it was not given."""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets no operation use the memory of these parameters: an optimizer's own, or those of `others`."""

    def __init__(self, own: Sequence[Tensor], others: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own, self._others = ({_address(tensor) for tensor in tensors} - {0} for tensors in (own, others))
        self.uses_own = self.uses_others = False

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = {_address(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        self.uses_own |= not self._own.isdisjoint(used)
        self.uses_others |= not self._others.isdisjoint(used)
        if self.uses_own or self.uses_others:
            raise _Reached
        return func(*args, **(kwargs or {}))


def _address(tensor: Tensor) -> int:
    is_plain = type(tensor.data) is Tensor and tensor.layout is torch.strided and tensor.device.type != "meta"
    return tensor.untyped_storage().data_ptr() if is_plain else 0


def discover(optimizer: Optimizer, others: Sequence[Tensor] = ()) -> FoundState:
    """Find what the optimizer will keep, by a few steps on copies, without changing the random numbers.

    ValueError, naming the optimizer and the remedy, if its state cannot be shared: it evaluates the loss again, keeps
    tensors that belong to no parameter, changes the shape of its state, or uses parameters of `others`, those of other
    optimizers.

    Many parameters are tried a few at a time, so that the copies take little memory; all at once, if the step reaches
    them by another way than the param groups.
    """
    own = vars(original_of(optimizer))
    if not {"state", "param_groups"} <= own.keys() or any(isinstance(value, Optimizer) for value in own.values()):
        raise unfit(optimizer, "it wraps another optimizer, which keeps the state")
    try:
        return _discover_in_parts(optimizer, others)
    except _Reached:
        return _discover(optimizer, others, range(len(parameters_of(optimizer))), reaches=True)


def _discover_in_parts(optimizer: Optimizer, others: Sequence[Tensor]) -> FoundState:
    entries: list[StateEntry] = []
    forms: dict[tuple[int, str], Any] = {}
    noted: list[NotedParts] = []
    chunk: list[int] = []
    size = 0
    parameters = parameters_of(optimizer)
    for place, parameter in enumerate(parameters):
        chunk.append(place)
        size += 0 if is_table(parameter) else parameter.numel() * parameter.element_size()
        if size >= AT_A_TIME or place == len(parameters) - 1:
            discovered = _discover(optimizer, others, chunk)
            entries += [replace(entry, parameter=chunk[entry.parameter]) for entry in discovered.entries]
            forms |= {(chunk[number], name): form for (number, name), form in discovered.forms.items()}
            noted.append(discovered.noted)
            chunk, size = [], 0
    return FoundState(entries, forms, NotedParts.of(noted))


def _discover(
    optimizer: Optimizer, others: Sequence[Tensor], places: Sequence[int], reaches: bool = False
) -> FoundState:
    """What it keeps for the parameters at `places`, numbered in this order."""
    parameters = parameters_of(optimizer)
    copies = counterparts(optimizer, [trial(parameters[place]) for place in places], places, is_trial=True)
    tried = train(rebuild(optimizer, copies, places))
    before = ChangedEntries(tried)
    attributes = [images(vars(parameter)) for parameter in copies]
    for parameter in copies:
        parameter.grad = trial_gradient(parameter, torch.ones_like(parameter.data))
    first, first_forms = _try(optimizer, others, tried, copies, reaches)
    last, forms = _kept(tried, copies)
    shapes = {(entry.parameter, entry.name, entry.hole): entry.example.shape for entry in last}
    for entry in first:
        if shapes.get((entry.parameter, entry.name, entry.hole)) != entry.example.shape:
            raise unfit(optimizer, f"the shape of its state {entry.name!r} changes")
    for key, form in forms.items():
        if first_forms.get(key, form) not in (form, None):
            raise unfit(optimizer, f"its state {key[1]!r} is a {type(form).__name__} that changes")
    for parameter, was in zip(copies, attributes, strict=True):
        if images(vars(parameter)) != was:
            raise unfit(
                optimizer, "a step changes an attribute of a parameter, but servers do not keep such attributes"
            )
    noted = _noted(optimizer, tried, before)
    numbers = groups_of(optimizer, places)
    keys = frozenset((numbers[group], key) for group, key in noted.keys)
    return FoundState(last, forms, replace(noted, keys=keys), reaches)


class _Turns:
    """Whose turn it is to use torch's generator."""

    lock = threading.Lock()

    @classmethod
    def renew(cls) -> None:
        """In a forked process: another thread of the parent may hold the lock, and is not there to release it."""
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Turns.renew)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Restores torch's CPU random numbers afterwards. One thread at a time: of two threads that read torch's generator,
    one can hold its mutex and wait for the interpreter, which the other one holds while it waits for the mutex."""
    with _Turns.lock, torch.random.fork_rng(devices=[]):
        yield


def _try(
    optimizer: Optimizer, others: Sequence[Tensor], tried: Optimizer, copies: Sequence[Parameter], reaches: bool
) -> tuple[list[StateEntry], dict[tuple[int, str], Any]]:
    """Make the trial steps; returns what `_kept` finds after the first. Without hooks, which may do anything, and
    without a step that was put on the object. `_Reached` if a step uses the optimizer's parameters themselves, unless
    `reaches` says so: then the optimizer itself steps, on the copies."""
    watch = _Watch([] if reaches else parameters_of(optimizer), others)
    with own_random_numbers(), no_hooks(tried, optimizer):
        try:
            with nullcontext() if is_torchs(optimizer) else watch:
                _trial_step(tried, reaches, closure=True)
                first = _kept(tried, copies)
                for _ in range(DRY_STEPS - 1):
                    _trial_step(tried, reaches)
        except (UnfitError, _Reached):
            if not (watch.uses_own or watch.uses_others):
                raise
        except Exception as error:
            if not (watch.uses_own or watch.uses_others):
                raise unfit(optimizer, f"a step on CPU with dense gradients fails ({error})") from error
    if watch.uses_others:
        raise unfit(optimizer, "it uses parameters of another optimizer")
    if watch.uses_own:
        raise _Reached
    return first


def _trial_step(tried: Optimizer, reaches: bool, closure: bool = False) -> None:
    if not reaches:
        step(tried, closure=closure)
        return
    with lent(tried) as original:
        step(original, MethodType(type(original).step, original), closure)


def _noted(optimizer: Optimizer, tried: Optimizer, before: ChangedEntries) -> NotedParts:
    """What the trial steps have changed beside the state of parameters."""
    groups, names = before.changed()
    attributes = [name for name in names if is_scalar(vars(tried)[name])]
    if others := set(names) - set(attributes):
        raise unfit(optimizer, f"a step changes its attribute {min(others)!r}")
    if not groups and not attributes and not unowned_state(tried):
        return NotedParts()
    for number, key in groups:
        if not can_be_noted(tried.param_groups[number][key]):
            raise unfit(optimizer, f"a step changes the param group entry {key!r}, which is not a number")
    if not all(isinstance(key, str) and can_be_noted(value) for key, value in unowned_state(tried).items()):
        raise unfit(optimizer, "it keeps tensors that do not belong to any parameter")
    return NotedParts(frozenset(groups), frozenset(attributes), 2 * len(noted_text(tried, groups, attributes)) + ROOM)


def refuse_coupling(optimizer: Optimizer, shards: Sequence[Sequence[int]]) -> None:
    """ValueError unless separate optimizers for `shards` do exactly what one optimizer does.

    Found by steps with random gradients on copies. Optimizers that look at one parameter at a time pass, layer-wise
    ones (LARS, LAMB) too; those that take a norm over all layers do not.
    """
    if len(shards) < 2:
        return
    generator = torch.Generator().manual_seed(0)
    originals = [trial(p) for p in parameters_of(optimizer)]
    noise = [[_noise(p, generator) for p in originals] for _ in range(DRY_STEPS)]
    ways: list[tuple[list[Parameter], list[Optimizer]]] = []
    for cuts in ([range(len(originals))], shards):
        copies = counterparts(optimizer, [p.clone() for p in originals], range(len(originals)), is_trial=True)
        made = [train(rebuild(optimizer, [copies[i] for i in cut], list(cut))) for cut in cuts]
        with own_random_numbers(), no_hooks(*made):
            for gradients in noise:
                for parameter, gradient in zip(copies, gradients, strict=True):
                    parameter.grad = trial_gradient(parameter, gradient.clone())
                for optimizer_ in made:
                    torch.manual_seed(0)
                    step(optimizer_)
        ways.append((copies, made))
    (whole, (one,)), (parts, made) = ways
    same = all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    if not same or not all(_notes_alike(optimizer, one, part, cut) for part, cut in zip(made, shards, strict=True)):
        raise ArgumentError(
            "contradiction",
            "shards",
            f"{type(optimizer).__name__} keeps state across layers, or draws random numbers: "
            f"{len(shards)} shards would train differently from one",
            "Set shards: 1.",
        )


def _notes_alike(optimizer: Optimizer, whole: Optimizer, part: Optimizer, cut: Sequence[int]) -> bool:
    """Whether a part has the same param groups and global state as the whole: an estimate over all layers may still be
    too small to show in the weights."""
    of_whole = [whole.param_groups[number] for number in groups_of(optimizer, cut)]
    alike = [images(mine) == images(other) for mine, other in zip(part.param_groups, of_whole, strict=True)]
    return all(alike) and images(unowned_state(part)) == images(unowned_state(whole))


def refuse_own_rate(optimizer: Optimizer, discovered: FoundState) -> None:
    """ValueError, for a damping that multiplies learning rates, if the optimizer's own steps change them."""
    if any(key == "lr" for _, key in discovered.noted.keys):
        raise ArgumentError(
            "contradiction",
            "damping",
            f"multiplies learning rates, but the steps of {type(optimizer).__name__} change them",
            "Set damping: none, or use another optimizer.",
        )


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    real = like.dtype if like.dtype.is_floating_point else torch.float32
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(real).to(like.dtype).mul_(0.1)


def _kept(optimizer: Optimizer, parameters: Sequence[Parameter]) -> tuple[list[StateEntry], dict[tuple[int, str], Any]]:
    """Entries and forms."""
    entries: list[StateEntry] = []
    forms: dict[tuple[int, str], Any] = {}
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                entries.append(StateEntry(index, name, torch.empty_like(value, device="meta"), None))
            elif type(value) in NUMBERS:
                entries.append(StateEntry(index, name, torch.zeros((), dtype=NUMBERS[type(value)]), type(value)))
            else:
                try:
                    forms[index, name], tensors = cut_out(value)
                except TypeError as error:
                    raise unfit(optimizer, f"its state {name!r} has a {error}") from error
                for hole, tensor in enumerate(tensors):
                    entries.append(StateEntry(index, name, torch.empty_like(tensor, device="meta"), None, hole))
    return entries, forms
