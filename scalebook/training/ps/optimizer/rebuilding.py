"""The user's optimizer, made again on other tensors, and what it keeps between steps."""

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.ps.optimizer.tables import is_row_state, is_table, mark, state_for, trial, trial_gradient

AT_A_TIME: Final = 32 * 2**20  # bytes of parameters whose state is discovered together
DRY_STEPS: Final = 3  # some optimizers make their state in the first step, some change its type in the second
NUMBERS: Final[Mapping[type, torch.dtype]] = {bool: torch.int64, int: torch.int64, float: torch.float64}


@dataclass(frozen=True)
class StateEntry:
    """What an optimizer keeps for a parameter: a tensor, or a Python number when `number` names its type."""

    parameter: int
    name: str
    example: Tensor
    number: type | None


def parameters_of(optimizer: Optimizer) -> list[Parameter]:
    """Its parameters, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def packed(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Param groups as in a state dict: the places of their parameters instead of these."""
    groups_, place = [], 0
    for group in groups:
        count = len(group["params"])
        groups_.append({**group, "params": list(range(place, place + count))})
        place += count
    return groups_


def rebuild(optimizer: Optimizer, parameters: Sequence[Parameter], chosen: Sequence[int] | None = None) -> Optimizer:
    """The same optimizer, its arguments and state included, on other parameters in the order of `parameters_of`.

    `chosen` are the places of those that `parameters` stand for, increasing; None: all. Groups that lose every
    parameter are left out (`groups_of` says which stay). Not by the constructor, whose arguments need not be its
    defaults (AdamW), but by copying the object with the old parameters exchanged for the new ones. A scheduler's
    wrapper around `step` is left behind. What it keeps for each row of a sparse table is not copied: it is cut to as
    few rows as the new one has, or the same.
    """
    old = parameters_of(optimizer)
    places = range(len(old)) if chosen is None else chosen
    given = dict(zip(places, parameters, strict=True))
    memo: dict[int, Any] = {id(p): given.get(place, p) for place, p in enumerate(old)}
    kept = {id(old[place]) for place in places}
    tables = {id(old[place]): new for place, new in given.items() if is_table(old[place])}
    for table in tables.values():
        mark(table)
    made: Optimizer = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name == "param_groups":
            groups = [{**group, "params": [p for p in group["params"] if id(p) in kept]} for group in value]
            value = [group for group in groups if group["params"]]
        elif name == "state":
            value = defaultdict(dict, {p: s for p, s in value.items() if id(p) in kept})
            for p in [p for p in value if id(p) in tables]:
                value[p] = state_for(p, tables[id(p)], value[p])
                memo.update({id(v): v for v in value[p].values() if is_row_state(v, tables[id(p)])})
        if name != "step":
            is_hooks = name.startswith("_optimizer_")  # functions that may hold a whole model: shared, not copied
            vars(made)[name] = value if is_hooks else copy.deepcopy(value, memo)
    return made


def step(optimizer: Optimizer, call: Callable[..., Any] | None = None) -> None:
    """One step with the gradients that the parameters have; by `call` instead of `optimizer.step`.

    A `step` that demands a closure is given one that has been evaluated already. ValueError when it evaluates that
    twice, or looks at the loss, which is not known where the step is made.
    """
    call = call or optimizer.step
    if not _demands_closure(type(optimizer).step):
        call()
        return
    times = 0

    def evaluated() -> Tensor:
        nonlocal times
        times += 1
        if times > 1:
            raise _refused(optimizer, "it evaluates the loss several times a step")
        return torch.zeros(()).as_subclass(_Unknown)

    try:
        call(evaluated)  # type: ignore[arg-type]  # torch says that it returns a float
    except _LookedAt as error:
        raise _refused(optimizer, "it looks at the loss, or evaluates it several times a step") from error


@cache
def _demands_closure(step_: Callable[..., Any]) -> bool:
    """Of a class's `step`. To look takes as long as the step of a small model."""
    closure = inspect.signature(step_).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


class _LookedAt(Exception):  # a sign for `step`
    """Somebody computes with a loss that is not known."""


class _Unknown(Tensor):
    """A loss that may be passed on, but not looked at."""

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


def discover(optimizer: Optimizer) -> list[StateEntry]:
    """What the optimizer will keep for its parameters, found by a few steps on copies; random numbers are left alone.

    ValueError, naming the optimizer and what to do, for one whose state cannot live beside the parameters: it needs
    to evaluate the loss again, keeps state that belongs to no parameter, or state that changes its shape.

    A few parameters at a time where they are many, so that the copies take little memory.
    """
    entries: list[StateEntry] = []
    chunk: list[int] = []
    size = 0
    parameters = parameters_of(optimizer)
    for place, parameter in enumerate(parameters):
        chunk.append(place)
        size += 0 if is_table(parameter) else parameter.numel() * parameter.element_size()
        if size >= AT_A_TIME or place == len(parameters) - 1:
            entries += [replace(kept, parameter=chunk[kept.parameter]) for kept in _discover(optimizer, chunk)]
            chunk, size = [], 0
    return entries


def _discover(optimizer: Optimizer, places: Sequence[int]) -> list[StateEntry]:
    """What it keeps for the parameters at `places`, numbered in this order."""
    parameters = parameters_of(optimizer)
    copies = [Parameter(trial(parameters[place])) for place in places]
    tried = rebuild(optimizer, copies, places)
    settings = _settings(tried)
    with torch.random.fork_rng(devices=[]):
        for parameter in copies:
            parameter.grad = trial_gradient(parameter, torch.ones_like(parameter))
        try:
            step(tried)
            first = _kept(tried, copies)
            for _ in range(DRY_STEPS - 1):
                step(tried)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise _refused(optimizer, f"a step on CPU with dense gradients fails ({error})") from error
    if _settings(tried) != settings:
        raise _refused(optimizer, "it keeps state in its param groups")
    last = _kept(tried, copies)
    shapes = {(kept.parameter, kept.name): kept.example.shape for kept in last}
    for kept in first:
        if shapes.get((kept.parameter, kept.name)) != kept.example.shape:
            raise _refused(optimizer, f"the shape of its state {kept.name!r} changes")
    return last


def refuse_coupling(optimizer: Optimizer, shards: Sequence[Sequence[int]]) -> None:
    """ValueError when separate optimizers for `shards` do not do exactly what one optimizer does.

    Found by steps with random gradients on copies. True for optimizers that look at one parameter at a time, layer-wise
    ones (LARS, LAMB) included; not for those that take a norm over all layers.
    """
    if len(shards) < 2:
        return
    generator = torch.Generator().manual_seed(0)
    originals = [trial(p) for p in parameters_of(optimizer)]
    noise = [[_noise(p, generator) for p in originals] for _ in range(DRY_STEPS)]
    ways = []
    for cuts in ([range(len(originals))], shards):
        copies = [Parameter(p.clone()) for p in originals]
        made = [rebuild(optimizer, [copies[i] for i in cut], list(cut)) for cut in cuts]
        with torch.random.fork_rng(devices=[]):
            for gradients in noise:
                for parameter, gradient in zip(copies, gradients, strict=True):
                    parameter.grad = trial_gradient(parameter, gradient.clone())
                for optimizer_ in made:
                    torch.manual_seed(0)
                    step(optimizer_)
        ways.append(copies)
    if not all(torch.equal(a, b) for a, b in zip(*ways, strict=True)):
        raise ValueError(
            f"trainer.strategy.init_args.shards: {type(optimizer).__name__} keeps something across layers, or draws "
            f"random numbers, so {len(shards)} shards would not do what one does. Write shards: 1."
        )


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    real = like.dtype if like.dtype.is_floating_point else torch.float32
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(real).to(like.dtype).mul_(0.1)


def _kept(optimizer: Optimizer, parameters: Sequence[Parameter]) -> list[StateEntry]:
    strangers = [key for key in optimizer.state if not any(key is parameter for parameter in parameters)]
    if strangers:
        raise _refused(optimizer, "it keeps state that belongs to no parameter")
    entries = []
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                entries.append(StateEntry(index, name, torch.empty_like(value, device="meta"), None))
            elif type(value) in NUMBERS:
                entries.append(StateEntry(index, name, torch.zeros((), dtype=NUMBERS[type(value)]), type(value)))
            elif value is not None:
                raise _refused(optimizer, f"its state {name!r} is a {type(value).__name__}")
    return entries


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [
        {key: _frozen(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
    ]


def _frozen(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else copy.deepcopy(value)


def _refused(optimizer: Optimizer, reason: str) -> ValueError:
    return ValueError(
        f"optimizer: {type(optimizer).__name__} does not work with a parameter server: {reason}. "
        "Use another optimizer, for instance torch.optim.SGD or torch.optim.Adam, or strategy ddp."
    )
