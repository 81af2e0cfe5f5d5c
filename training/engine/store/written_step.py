"""Steps that only the user's optimizer object can make: with a `step` that was put on it, with hooks, or with a class
that reaches its parameters by another way than its param groups (a clamp of `model.layer.weight`).

Where a rebuilt optimizer would step, the original one does, on its own parameters, which meanwhile have the data and
gradients of the rebuilt one's. So everything that looks at the optimizer or at the model finds what it expects.
"""

import warnings
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.group_changes import images, is_scalar, scalar_attributes
from scalebook.training.engine.store.rebuilt_optimizer import (
    UnfitError,
    has_hooks,
    hooks_of,
    is_torchs,
    original_of,
    own_step,
    parameters_of,
    step,
)


class WrittenStep:
    """The step of a rebuilt optimizer, as its author wrote it. Made before anything of ours replaces `step`.

    `reaches`: whether the class reaches the parameters by another way than the param groups. `alone`: whether this
    process makes all steps, and the user's other code runs here too. `closures`: as in `Settings`.
    """

    def __init__(self, optimizer: Optimizer, reaches: bool, alone: bool, closures: bool) -> None:
        self._optimizer, self._original = optimizer, original_of(optimizer)
        self._own = own_step(self._original)
        self._is_always = reaches or self._own is not None
        self._alone, self._closures = alone, closures
        self._count, self._has_warned = 0, False

    @property
    def is_needed(self) -> bool:
        """Whether the rebuilt optimizer's own step would do something else."""
        return self._is_always or has_hooks(self._optimizer)

    def __call__(self) -> None:
        """Make a step. `UnfitError` if a function of the user's keeps tensors in this process, where not all steps are
        made; a warning if it keeps something else."""
        self._count += 1
        looks = not self._alone and self._count & (self._count - 1) == 0  # what is kept from later on shows, too
        with lent(self._optimizer) as original, torch.enable_grad():
            before = self._kept() if looks else None
            call = self._own or MethodType(type(original).step, original)
            step(original, call, given=self._closures)
            if before is not None:
                self._refuse_memory(before, self._kept())

    def _kept(self) -> "_Kept":
        original, memory = self._original, _Kept(self._original)
        for name, value in scalar_attributes(original).items():
            if name not in vars(self._optimizer):
                memory.look(value, f"optimizer.{name}", 0)
        for call in (self._own or type(original).step, *hooks_of(original)):
            memory.look(call, "", 0)
        return memory

    def _refuse_memory(self, before: "_Kept", after: "_Kept") -> None:
        changed = after.changed_since(before)
        tensors = sorted(changed & after.tensors)
        if not changed or (self._has_warned and not tensors):
            return
        names = ", ".join(tensors or sorted(changed))
        kind = type(self._original).__name__
        if tensors:
            raise UnfitError(
                f"optimizer: a hook or replaced step of {kind} changes {names}, but each process would apply the "
                "change only in its own updates. Use one worker, strategy Peers, or strategy ddp."
            )
        self._has_warned = True
        warnings.warn(
            f"optimizer: a hook or replaced step of {kind} changes {names}, but each process applies the change only "
            "in its own updates.",
            stacklevel=2,
        )


@contextmanager
def lent(optimizer: Optimizer) -> Iterator[Optimizer]:
    """Meanwhile the original of a rebuilt optimizer has its data, gradients, state and settings; afterwards the rebuilt
    one has what a step has made of them."""
    original = original_of(optimizer)
    if original is optimizer:
        yield original
        return
    mine, theirs = parameters_of(original), parameters_of(optimizer)
    held = [(p.data, p.grad) for p in mine]
    state, groups = original.state, original.param_groups
    pairs = list(zip(mine, theirs, strict=True))
    try:
        for own, other in pairs:
            own.grad, own.data = None, other.data
            own.grad = other.grad
        original.state = _exchanged(optimizer.state, {id(other): own for own, other in pairs})
        original.param_groups = [
            {**group, "params": was["params"]} for group, was in zip(optimizer.param_groups, groups, strict=True)
        ]
        vars(original).update(scalar_attributes(optimizer))
        yield original
        for group, now in zip(optimizer.param_groups, original.param_groups, strict=True):
            group.update({key: value for key, value in now.items() if key != "params"})
        after = _exchanged(original.state, {id(own): other for own, other in pairs})
        optimizer.state.clear()
        optimizer.state.update(after)
        now = vars(original)
        vars(optimizer).update({name: now[name] for name in scalar_attributes(optimizer) if name in now})
    finally:
        original.state, original.param_groups = state, groups
        for own, (data, grad) in zip(mine, held, strict=True):
            own.grad, own.data = None, data
            own.grad = grad


def _exchanged(state: Mapping[Any, Any], others: Mapping[int, Tensor]) -> defaultdict[Any, Any]:
    return defaultdict(dict, {others.get(id(key), key): value for key, value in state.items()})


class UnseenSettings:
    """What a step uses besides the hyper-parameters that travel with a push: hooks, and attributes of parameters. Where
    another process makes the steps, it has those from before training."""

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
        self._optimizer = optimizer
        self._parameters = [] if is_torchs(optimizer) else [p for p in parameters if getattr(p, "__dict__", None)]
        self._hooks, self._attributes = self._now()

    def refuse_changes(self) -> None:
        """ValueError if any of it has changed."""
        hooks, attributes = self._now()
        if hooks != self._hooks or attributes != self._attributes:
            what = "a step hook was added or removed" if hooks != self._hooks else "an attribute of a parameter changed"
            raise ArgumentError(
                "optimizer-not-supported",
                "optimizer",
                f"{what} during training, but the steps of {type(self._optimizer).__name__} run in another process, "
                "which does not see this change",
                "Set host: inline, or make such changes only in configure_optimizers.",
            )

    def _now(self) -> tuple[int, list[Any]]:
        return len(hooks_of(self._optimizer)), [images(vars(p)) for p in self._parameters]


# --- what a step remembers -------------------------------------------------------------------------------------------

_DEEP: Final = 6
_NOT_LOOKED_INTO: Final = ("torch", "lightning", "pytorch_lightning", "scalebook", "functools", "builtins")


class _Kept:
    """What functions can reach and change besides parameters and the optimizer's state: variables that they enclose,
    the object that they belong to, modules, globals. `values`: by name, to be compared later; `tensors`: which of them
    are tensors."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.values: dict[str, Any] = {}
        self.tensors: set[str] = set()
        self._seen = {id(optimizer), *map(id, parameters_of(optimizer))}

    def changed_since(self, before: "_Kept") -> set[str]:
        """Names of values that differ, or are new."""
        return {name for name, value in self.values.items() if before.values.get(name) != value}

    def look(self, value: Any, name: str, depth: int) -> None:
        """Note a value, and what it holds."""
        if isinstance(value, Tensor):
            if id(value) not in self._seen:
                self.values[name] = (id(value), value._version)
                self.tensors.add(name)
        elif is_scalar(value):
            self.values[name] = (type(value), repr(value))
        elif depth <= _DEEP and id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, Mapping | list | tuple | deque | set):
                self.values[name] = len(value)
            for part, item in self._parts(value):
                self.look(item, f"{name}.{part}".strip("."), depth + 1)

    def _parts(self, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, MethodType):
            return [("", value.__func__), ("", value.__self__)]
        if isinstance(value, partial):
            return [("", value.func), *((str(i), item) for i, item in enumerate(value.args)), *value.keywords.items()]
        if isinstance(value, FunctionType):
            return _of_function(value)
        if isinstance(value, Mapping):
            return [(str(key), item) for key, item in value.items()]
        if isinstance(value, list | tuple | deque | set):
            return [(str(i), item) for i, item in enumerate(value)]
        if isinstance(value, Module):
            own = {k: v for k, v in vars(value).items() if k not in ("_parameters", "_buffers", "_modules")}
            return [*own.items(), *value._buffers.items(), *value._modules.items()]
        if type(value).__module__.split(".")[0] in _NOT_LOOKED_INTO or not hasattr(value, "__dict__"):
            return []
        return [] if isinstance(value, type) else list(vars(value).items())


def _of_function(function: FunctionType) -> list[tuple[str, Any]]:
    """What a function encloses, and the globals that it names, unless it is a library's."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    enclosed = [(name, cell.cell_contents) for name, cell in cells if _is_full(cell)]
    if function.__module__.split(".")[0] in _NOT_LOOKED_INTO:
        return enclosed
    named = [(name, function.__globals__[name]) for name in function.__code__.co_names if name in function.__globals__]
    of_data = [(name, value) for name, value in named if is_scalar(value) or isinstance(value, list | dict | set)]
    return [*enclosed, *of_data]


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name without a value yet
        return False
