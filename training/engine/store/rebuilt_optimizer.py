"""The user's optimizer, rebuilt on other tensors, and what it keeps between steps."""

import copy
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.table_optimizer import is_row_state, is_table, mark_table, state_for

_ORIGINAL: Final = "_optimizer_original"


class UnfitError(ValueError):
    """An optimizer that the parameter server does not support."""


def parameters_of(optimizer: Optimizer) -> list[Parameter]:
    """Its parameters, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def counterpart(parameter: Tensor, data: Tensor, is_trial: bool = False) -> Parameter:
    """A parameter with other data that an optimizer cannot tell from the original: it has the same class and the same
    attributes, also those that change later. For a trial the attributes are copied."""
    kind = type(parameter)
    if kind is not Tensor and not issubclass(kind, Parameter):
        return Parameter(data, parameter.requires_grad)  # a wrapper of other tensors
    made: Any = Tensor._make_subclass(kind, data, parameter.requires_grad)
    made.__dict__ = dict(vars(parameter)) if is_trial else vars(parameter)
    return made  # type: ignore[no-any-return]


def counterparts(
    optimizer: Optimizer, data: Sequence[Tensor], places: Sequence[int], is_trial: bool = False
) -> list[Parameter]:
    """The counterparts of its parameters at `places`, with these data."""
    own = parameters_of(optimizer)
    return [counterpart(own[place], one, is_trial) for place, one in zip(places, data, strict=True)]


def packed(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Param groups as in a state dict, with the places of the parameters."""
    groups_, place = [], 0
    for group in groups:
        count = len(group["params"])
        groups_.append({**group, "params": list(range(place, place + count))})
        place += count
    return groups_


def rebuild(optimizer: Optimizer, parameters: Sequence[Parameter], chosen: Sequence[int] | None = None) -> Optimizer:
    """The same optimizer, with its arguments and state, on other parameters in the order of `parameters_of`.

    `chosen`: the places that `parameters` stand for, increasing; None: all. Groups that lose every parameter are left
    out (`groups_of` says which stay). The object is copied with its parameters exchanged; the constructor is not
    called, since its arguments need not be its defaults (AdamW). A scheduler's wrapper around `step` is left behind.
    Row-wise state of a sparse table is not copied: it is cut to the rows of the new table, or shared.
    """
    old = parameters_of(optimizer)
    places = range(len(old)) if chosen is None else chosen
    replacements = dict(zip(places, parameters, strict=True))
    memo: dict[int, Any] = {id(p): replacements.get(place, p) for place, p in enumerate(old)}
    chosen_ids = {id(old[place]) for place in places}
    tables = {id(old[place]): new for place, new in replacements.items() if is_table(old[place])}
    for table in tables.values():
        mark_table(table)
    made: Optimizer = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name == "param_groups":
            groups = [{**group, "params": [p for p in group["params"] if id(p) in chosen_ids]} for group in value]
            value = [group for group in groups if group["params"]]
        elif name == "state":
            value = {p: s for p, s in value.items() if id(p) in chosen_ids or not isinstance(p, Tensor)}
            value = defaultdict(dict, value)
            for p in [p for p in value if id(p) in tables]:
                value[p] = state_for(p, tables[id(p)], value[p])
                memo.update({id(v): v for v in value[p].values() if is_row_state(v, tables[id(p)])})
        if name != "step":
            is_hooks = name.startswith("_optimizer_")  # functions that may hold a whole model: shared, not copied
            vars(made)[name] = value if is_hooks else copy.deepcopy(value, memo)
    vars(made)[_ORIGINAL] = original_of(optimizer)
    return made


def original_of(optimizer: Optimizer) -> Optimizer:
    """The user's optimizer, which this one was rebuilt from; itself if it is the user's."""
    original: Optimizer = vars(optimizer).get(_ORIGINAL, optimizer)
    return original


def is_torchs(optimizer: Optimizer) -> bool:
    """Whether its class is one of torch's, which look at nothing but param groups and state."""
    return type(optimizer).__module__.startswith("torch.optim.")


def own_step(optimizer: Optimizer) -> Callable[..., Any] | None:
    """The `step` that somebody has put on this object, without the wrappers of schedulers and of Scalebook; None if
    it is that of the class."""
    call: Any = vars(optimizer).get("step")
    while call is not None:
        if isinstance(call, FunctionType) and call.__globals__.get("__name__") == "torch.optim.lr_scheduler":
            call = MethodType(vars(call)["__wrapped__"], optimizer)
        elif getattr(type(call), "_wrapped_by_lr_sched", False):
            call = call.__wrapped__
        else:
            break
    is_of_class = getattr(call, "__func__", call) is type(optimizer).step
    return None if call is None or is_of_class else call


def is_written(optimizer: Optimizer) -> bool:
    """Whether its steps do more than those of its class: they have hooks, or somebody has put a `step` on it."""
    return has_hooks(optimizer) or own_step(original_of(optimizer)) is not None


def cut_error(optimizer: Optimizer) -> ValueError:
    """The error for several shards where only the whole optimizer can make a step."""
    return ArgumentError(
        "contradiction",
        "shards",
        f"a step of {type(optimizer).__name__} calls hooks, was replaced on the object, or uses the model's parameters "
        "itself, so only the whole optimizer can run it",
        "Set shards: 1.",
    )


def hooks_of(optimizer: Optimizer) -> list[Callable[..., Any]]:
    """The hooks that each of its steps calls, those of all optimizers included."""
    registries = (
        optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks,
        _global_optimizer_pre_hooks, _global_optimizer_post_hooks,
    )  # fmt: skip
    return [hook for registry in registries for hook in registry.values()]


def has_hooks(optimizer: Optimizer) -> bool:
    """Whether each of its steps calls hooks."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
    )


@contextmanager
def no_hooks(*optimizers: Optimizer) -> Iterator[None]:
    """Meanwhile steps of these optimizers call no hooks, nor do those that all optimizers call."""
    registries: list[Any] = [_global_optimizer_pre_hooks, _global_optimizer_post_hooks]
    before = [dict(registry) for registry in registries]
    of_each = [{name: vars(one)[name] for name in _HOOKS} for one in optimizers]
    try:
        for registry in registries:
            registry.clear()
        for one in optimizers:
            vars(one).update({name: OrderedDict() for name in _HOOKS})
        yield
    finally:
        for registry, hooks in zip(registries, before, strict=True):
            registry.update(hooks)
        for one, own in zip(optimizers, of_each, strict=True):
            vars(one).update(own)


_HOOKS: Final = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def step(
    optimizer: Optimizer, call: Callable[..., Any] | None = None, closure: bool = False, given: bool = False
) -> None:
    """One step with the gradients that the parameters have; by `call` instead of `optimizer.step`.

    A `step` that requires a closure, or accepts one if `closure` is set, gets one that has been evaluated already. With
    `given` it gets one that gives the parameters their gradients, which they do not have before, as where a closure
    computes them. ValueError if it evaluates it twice, or reads the loss, which is not known where the step is made.
    """
    of = _closure_of(type(optimizer).step if call is None else getattr(call, "__func__", call))
    call = call or optimizer.step
    if not given and (of is None or (of.default is not inspect.Parameter.empty and not closure)):
        call()
        return
    times, parameters = 0, parameters_of(optimizer) if given else []
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None

    def evaluated() -> Tensor:
        nonlocal times
        times += 1
        if times > 1:
            raise unfit(optimizer, "it evaluates the loss several times per step")
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return torch.zeros(()).as_subclass(_Unknown)

    try:
        call(closure=evaluated)  # type: ignore[arg-type]  # torch says that it returns a float
    except _LookedAt as error:
        raise unfit(optimizer, "it reads the loss, or evaluates it several times per step") from error


def has_modes(optimizer: Optimizer) -> bool:
    """Whether it has a mode for training and one for validation, and swaps the weights in place between them, as
    schedule-free optimizers do."""
    return callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None))


def train(optimizer: Optimizer) -> Optimizer:
    """The same optimizer in its training mode, if it has modes: its step requires that, and training code has set it by
    then."""
    if has_modes(optimizer):
        optimizer.train()  # type: ignore[attr-defined]
    return optimizer


@cache
def _closure_of(step_: Callable[..., Any]) -> inspect.Parameter | None:
    """The closure parameter of a class's `step`. Cached, since the lookup takes as long as the step of a small
    model."""
    return inspect.signature(step_).parameters.get("closure")


class _LookedAt(Exception):  # a sign for `step`
    """Code reads a loss that is not known."""


class _Unknown(Tensor):
    """A loss that may be passed on, but not read."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _LookedAt


def groups_of(optimizer: Optimizer, chosen: Sequence[int]) -> list[int]:
    """The groups that hold any of the parameters at `chosen`, in order."""
    numbers, place, wanted = [], 0, set(chosen)
    for number, group in enumerate(optimizer.param_groups):
        if any(place + i in wanted for i in range(len(group["params"]))):
            numbers.append(number)
        place += len(group["params"])
    return numbers


def unfit(optimizer: Optimizer, reason: str) -> UnfitError:
    """The error that refuses this optimizer by name."""
    return UnfitError(
        f"optimizer: {type(optimizer).__name__} does not work with a parameter server: {reason}. "
        "Use another optimizer, for instance torch.optim.SGD or torch.optim.Adam, or strategy ddp."
    )
