"""Arguments that take a part of the training from outside: a `torch.nn.Module`, or a call that makes an optimizer.

Lightning's documentation calls it dependency injection: `net: torch.nn.Module`, `optimizer: OptimizerCallable`.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import TypeAliasType

from scalebook.training.experiments.description import FieldType, Group

PARTS: Final[tuple[tuple[Group, type], ...]] = (
    ("modules", Module),
    ("optimizers", Optimizer),
    ("lr_schedulers", LRScheduler),
)
LISTS: Final = (list, tuple, set)


class Injected(NamedTuple):
    """What such an argument takes, as a `Field` has it."""

    type: FieldType
    nullable: bool
    group: Group | None = None
    choices: list[str] = []  # noqa: RUF012 - of a tuple, and never changed
    given: int = 0


class _Named(NamedTuple):
    """What one annotation names; without a `group` where no config can say more of it than YAML."""

    group: Group | None
    choices: tuple[str, ...] = ()
    given: int = 0


def injected(hint: Any, modules: Mapping[str, type]) -> Injected | None:
    """What an argument takes from outside; None for one of another kind. `modules` are those that a config may name."""
    alternatives = [*_alternatives(hint)]
    nullable = NoneType in alternatives
    alternatives = [alternative for alternative in alternatives if alternative is not NoneType]
    parts = {part for alternative in alternatives for part in _parts(alternative, modules)}
    if not parts:
        return None
    part = parts.pop() if len(parts) == 1 else _Named(None)
    type_: FieldType = "json"
    if len(alternatives) == 1 and part.group is not None:
        direct = _named(alternatives[0], modules) is not None
        type_ = "class" if direct else "list" if get_origin(alternatives[0]) in LISTS else "json"
    return Injected(type_, nullable, part.group, [*part.choices], part.given)


def _alternatives(hint: Any) -> Iterator[Any]:
    """What a union, or a name for one, is made of."""
    if isinstance(hint, TypeAliasType):
        yield from _alternatives(hint.__value__)
    elif get_origin(hint) is Annotated:
        yield from _alternatives(get_args(hint)[0])
    elif get_origin(hint) in (Union, UnionType):
        for arg in get_args(hint):
            yield from _alternatives(arg)
    else:
        yield hint


def _parts(hint: Any, modules: Mapping[str, type]) -> Iterator[_Named]:
    """What is named anywhere in an annotation: `dict[str, torch.nn.Module]`."""
    for alternative in _alternatives(hint):
        if (named := _named(alternative, modules)) is not None:
            yield named
        elif get_origin(alternative) is not type:
            for arg in get_args(alternative):
                yield from _parts(arg, modules)


def _named(hint: Any, modules: Mapping[str, type]) -> _Named | None:
    """What a class, or a call that returns one, stands for; None for an annotation of another kind."""
    if hint is Callable or get_origin(hint) is Callable:
        passed, returned = get_args(hint) or ((), Any)
        classes = [alternative for alternative in _alternatives(returned) if alternative is not NoneType]
        given = 1 if passed is Ellipsis else len(passed)  # of `Callable[..., Module]` jsonargparse takes it to be one
        return _of(classes, modules, given) or _Named(None)
    return _of([hint], modules, given=0)


def _of(classes: Iterable[Any], modules: Mapping[str, type], given: int) -> _Named | None:
    classes = [*classes]
    if not classes:
        return None
    for group, part in PARTS:
        if not all(inspect.isclass(kind) and issubclass(kind, part) for kind in classes):
            continue
        if group != "modules":  # what is to be optimized is passed by a call, so there is no such class without one
            return _Named(group if given and part in classes else None)
        if Module in classes:
            return _Named(group, (), given)
        fitting = tuple(path for path, kind in modules.items() if issubclass(kind, tuple(classes)))
        return _Named(group if fitting else None, fitting, given)
    return None
