"""What an optimizer's step changes beside the state of its parameters: entries of its param groups (a step count, an
estimate of the learning rate), state that belongs to no parameter, and attributes of the optimizer.

All of these are small, of any type that a setting may have; the type may change, and an entry may appear later. So they
are kept as text, exact to the last bit (`hyper`), in every version of a shard.
"""

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.hyper import plain, value_of

ROOM: Final = 2048  # bytes by which a text may grow, as numbers get more digits and entries come later
_DEEP: Final = 4  # how far an attribute is looked into
_NOT_ITS_OWN: Final = frozenset(
    {"state", "param_groups", "defaults", "step", "_opt_called", "_step_count", "_zero_grad_profile_name"}
)
_SCALARS: Final = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class NotedParts:
    """What is kept as text: entries of param groups, as (group number, key), and attributes. `room`: bytes for it; 0:
    nothing is kept."""

    keys: frozenset[tuple[int, str]] = frozenset()
    attributes: frozenset[str] = frozenset()
    room: int = 0

    @classmethod
    def of(cls, parts: Iterable["NotedParts"]) -> "NotedParts":
        """The union over several parts of one optimizer."""
        given = list(parts)
        keys = frozenset(key for part in given for key in part.keys)
        return cls(keys, frozenset(n for part in given for n in part.attributes), sum(part.room for part in given))


@dataclass(frozen=True)
class GroupNote:
    """An entry of a param group that steps change: its value, and the first version whose step changed it."""

    since: int
    value: Any


@dataclass(frozen=True)
class NotedText:
    """The noted values: by group and key, by the key of the state, and by the name of the attribute."""

    groups: list[dict[str, GroupNote]]
    state: dict[str, Any]
    attributes: dict[str, Any]


def write(text: NotedText) -> bytes:
    """Encode. ArgumentError for a value that cannot be written."""
    groups = [{key: [note.since, plain(key, note.value)] for key, note in group.items()} for group in text.groups]
    others = [{key: plain(key, value) for key, value in entries.items()} for entries in (text.state, text.attributes)]
    return json.dumps([groups, *others]).encode()


def read(text: bytes) -> NotedText:
    """The inverse of `write`."""
    groups, *others = json.loads(text)
    state, attributes = ({key: value_of(value) for key, value in entries.items()} for entries in others)
    notes = [{key: GroupNote(since, value_of(value)) for key, (since, value) in group.items()} for group in groups]
    return NotedText(notes, state, attributes)


def unowned_state(optimizer: Optimizer) -> dict[Any, Any]:
    """State that belongs to no parameter."""
    return {key: value for key, value in optimizer.state.items() if not isinstance(key, Tensor)}


def noted_text(optimizer: Optimizer, keys: Iterable[tuple[int, str]], attributes: Iterable[str]) -> bytes:
    """What version 0 notes of an optimizer."""
    groups: list[dict[str, GroupNote]] = [{} for _ in optimizer.param_groups]
    for number, key in keys:
        groups[number][key] = GroupNote(0, optimizer.param_groups[number][key])
    return write(NotedText(groups, unowned_state(optimizer), {name: vars(optimizer)[name] for name in attributes}))


def can_be_noted(value: object) -> bool:
    """Whether a value is a number, a text, None, a tensor of one element, or a container of these."""
    try:
        plain("", value)
    except ValueError:
        return False
    return True


def is_scalar(value: object) -> bool:
    """Whether an attribute with this value can be noted."""
    return type(value) in _SCALARS or (isinstance(value, Tensor) and value.numel() == 1)


def scalar_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Its attributes that can be noted."""
    return {name: value for name, value in _attributes(optimizer).items() if is_scalar(value)}


class ChangedEntries:
    """Remembers param groups and attributes; `changed` says what a step has changed since."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [images(group) for group in optimizer.param_groups]
        self._attributes = images(_attributes(optimizer))

    def changed(self) -> tuple[list[tuple[int, str]], list[str]]:
        """Entries of groups, by number and key, and names of attributes."""
        groups = [
            (number, key)
            for number, (group, was) in enumerate(zip(self._optimizer.param_groups, self._groups, strict=True))
            for key, image in images(group).items()
            if key not in was or was[key] != image
        ]
        now, was = images(_attributes(self._optimizer)), self._attributes
        return groups, [name for name, image in now.items() if name not in was or was[name] != image]


def _attributes(optimizer: Optimizer) -> dict[str, Any]:
    own = vars(optimizer).items()
    return {name: value for name, value in own if name not in _NOT_ITS_OWN and not name.startswith("_optimizer_")}


def images(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Values to compare later: equal as long as the originals stay the same, without parameters. For a tensor with
    several elements valid only in this process."""
    return {key: _image(value, 0) for key, value in values.items() if key != "params"}


def _image(value: Any, depth: int) -> Any:
    """A value to compare later: equal as long as the original stays the same."""
    if isinstance(value, Tensor):
        same: Any = value.item() if value.numel() == 1 else (id(value), value._version)
        return tuple(value.shape), str(value.dtype), repr(same)
    if type(value) in _SCALARS:
        return type(value), repr(value) if isinstance(value, float) and math.isnan(value) else value
    if depth >= _DEEP or isinstance(value, type) or callable(value):
        return id(value)
    if isinstance(value, Mapping):
        return [(id(key) if isinstance(key, Tensor) else key, _image(item, depth + 1)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return _listed(value, depth)
    return type(value), _listed(vars(value).values(), depth) if hasattr(value, "__dict__") else id(value)


def _listed(values: Iterable[Any], depth: int) -> list[Any]:
    return [_image(item, depth + 1) for item in values]
