"""What steps change beside the state of parameters, as each version of a shard has it (`ps/optimizer/noting.py`).

It lies behind the version's parameters: it is published with them, stays as it is while a worker holds the version, and
travels with them to another machine. Of such an entry of a param group a push has a value only where somebody has
changed it in the worker since it was shown there: else what steps have made of it counts, and not a stale copy.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.ps.applying.plan import ShardPlan
from scalebook.training.ps.optimizer.hyper import Groups
from scalebook.training.ps.optimizer.noting import GroupNote, Text, read, strangers, write

_LENGTH: Final = 8  # bytes


class StepNotes:
    """Those of one shard in one process, whose optimizer is `optimizer`; `flats`: the memory of its versions."""

    def __init__(self, optimizer: Optimizer, plan: ShardPlan, flats: Sequence[Tensor]) -> None:
        self._optimizer, self._attributes = optimizer, plan.noted.attributes
        self._rooms = [memoryview(plan.notes.views(flat)[0].numpy().data) for flat in flats]
        keys: list[set[str]] = [{key for of, key in plan.noted.keys if of == number} for number in plan.groups]
        self._tried = keys  # that the steps of the trial have changed
        self._since: list[dict[str, int]] = [{} for _ in keys]
        self._text = b""  # what the optimizer has
        self._given: list[dict[str, Any]] = []

    def text(self, buffer: int) -> bytes:
        """What the version in this buffer has."""
        room = self._rooms[buffer]
        length = int.from_bytes(room[:_LENGTH], "little")
        return bytes(room[_LENGTH : _LENGTH + length])

    def show(self, buffer: int) -> None:
        """Let the optimizer have what the version in this buffer has."""
        if (text := self.text(buffer)) == self._text:
            return
        noted = read(text)
        for group, entries in zip(self._optimizer.param_groups, noted.groups, strict=True):
            group.update({key: note.value for key, note in entries.items()})
        self._since = [{key: note.since for key, note in entries.items()} for entries in noted.groups]
        self._optimizer.state.update(noted.state)  # type: ignore[arg-type]  # by texts
        vars(self._optimizer).update(noted.attributes)
        self._text = text

    def take(self, groups: Groups, base: int) -> None:
        """Before a step: these hyper-parameters, of a worker that has seen version `base`."""
        self._text = b""
        for own, given, since in zip(self._optimizer.param_groups, groups, self._since, strict=True):
            for key, value in given.items():
                if key != "params" and since.get(key, base) <= base:
                    own[key] = value
        self._given = [dict(group) for group in self._optimizer.param_groups]

    def write(self, buffer: int, version: int) -> None:
        """After a step: what it has made of all this becomes part of `version`, which lies in this buffer."""
        groups = self._optimizer.param_groups
        for own, given, since in zip(groups, self._given or groups, self._since, strict=True):
            for key, value in own.items():
                if key not in since and key != "params" and _differs(given, key, value):
                    since[key] = version
        self._put(buffer)

    def begin(self, buffer: int, version: int, groups: Groups | None = None, of: Optimizer | None = None) -> None:
        """The optimizer as it is, or with what these groups have, and with the attributes `of` another, is what
        `version` has, the first of a run."""
        if of is not None:
            vars(self._optimizer).update({name: vars(of)[name] for name in self._attributes & vars(of).keys()})
        for number, own in enumerate(self._optimizer.param_groups):
            if groups is not None:
                own.update({key: groups[number][key] for key in self._tried[number] & groups[number].keys()})
            self._since[number] = dict.fromkeys(
                (self._tried[number] | self._since[number].keys()) & own.keys(), version
            )
        self._put(buffer)

    def _put(self, buffer: int) -> None:
        groups, own = self._optimizer.param_groups, vars(self._optimizer)
        noted = [
            {key: GroupNote(since, group[key]) for key, since in entries.items() if key in group}
            for group, entries in zip(groups, self._since, strict=True)
        ]
        attributes = {name: own[name] for name in self._attributes if name in own}
        text, room = write(Text(noted, strangers(self._optimizer), attributes)), self._rooms[buffer]
        if len(text) + _LENGTH > len(room):
            raise outgrown(self._optimizer)
        room[: _LENGTH + len(text)] = len(text).to_bytes(_LENGTH, "little") + text
        self._text = text


def refuse_changes(optimizer: Optimizer, given: Sequence[Mapping[str, Any]]) -> None:
    """TypeError where a step has changed a param group of an optimizer of which nothing is noted."""
    for own, was in zip(optimizer.param_groups, given, strict=True):
        if len(own) != len(was) or any(
            own[key] is not value and _differs(own, key, value) for key, value in was.items()
        ):
            raise outgrown(optimizer)


def outgrown(optimizer: Optimizer) -> TypeError:
    """Of what its first steps did not show."""
    return TypeError(
        f"optimizer: {type(optimizer).__name__} added to its param groups after its first steps, "
        "which a parameter server cannot follow. Use another optimizer, or strategy ddp."
    )


def _differs(group: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether the entry is another than `value`; of tensors, whether it is another object."""
    if key not in group:
        return True
    was = group[key]
    return was is not value and (isinstance(value, Tensor) or isinstance(was, Tensor) or bool(was != value))
