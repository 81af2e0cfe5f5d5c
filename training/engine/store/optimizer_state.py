"""An optimizer's state in shared memory, twice: that of the newest version, and that of the version being made.

The first step of a parameter makes its state privately, as in plain training. It is then moved into its slot and marked
present, and the optimizers of the other processes find it there. Values that an optimizer replaces instead of updating
in place, and Python numbers, are copied back after every step. Call all methods under `Shard.applying`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.store.group_changes import GroupNote, NotedText, read, unowned_state, write
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.state_discovery import StateEntry, cut_out, filled
from scalebook.training.engine.store.store_layout import ShardPlan

_LENGTH: Final = 8  # bytes


class StepNotes:
    """The notes of one shard in one process. `flats`: the memory of its versions."""

    def __init__(self, optimizer: Optimizer, plan: ShardPlan, flats: Sequence[Tensor]) -> None:
        self._optimizer, self._attributes = optimizer, plan.noted.attributes
        self._rooms = [memoryview(plan.notes.views(flat)[0].numpy().data) for flat in flats]
        keys: list[set[str]] = [{key for of, key in plan.noted.keys if of == number} for number in plan.groups]
        self._tried = keys  # that the steps of the trial have changed
        self._since: list[dict[str, int]] = [{} for _ in keys]
        self._text = b""  # what the optimizer has
        self._given: list[dict[str, Any]] = []

    def text(self, buffer: int) -> bytes:
        """The notes of the version in this buffer."""
        room = self._rooms[buffer]
        length = int.from_bytes(room[:_LENGTH], "little")
        return bytes(room[_LENGTH : _LENGTH + length])

    def load_version(self, buffer: int) -> None:
        """Load the notes of the version in this buffer into the optimizer."""
        if (text := self.text(buffer)) == self._text:
            return
        noted = read(text)
        for group, entries in zip(self._optimizer.param_groups, noted.groups, strict=True):
            group.update({key: note.value for key, note in entries.items()})
        self._since = [{key: note.since for key, note in entries.items()} for entries in noted.groups]
        self._optimizer.state.update(noted.state)  # type: ignore[arg-type]  # by texts
        vars(self._optimizer).update(noted.attributes)
        self._text = text

    def load_groups(self, groups: Groups, base: int) -> None:
        """Before a step: load the hyper-parameters of a worker that has seen version `base`."""
        self._text = b""
        for own, given, since in zip(self._optimizer.param_groups, groups, self._since, strict=True):
            for key, value in given.items():
                if key != "params" and since.get(key, base) <= base:
                    own[key] = value
        self._given = [dict(group) for group in self._optimizer.param_groups]

    def write(self, buffer: int, version: int) -> None:
        """After a step: store what it changed as part of `version`, in this buffer."""
        groups = self._optimizer.param_groups
        for own, given, since in zip(groups, self._given or groups, self._since, strict=True):
            for key, value in own.items():
                if key not in since and key != "params" and _differs(given, key, value):
                    since[key] = version
        self._put(buffer)

    def set_initial(self, buffer: int, version: int, groups: Groups | None = None, of: Optimizer | None = None) -> None:
        """Set the notes of `version`, the first of a run: of the optimizer as it is, or with these `groups`, and with
        the attributes of the optimizer `of`."""
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
        text, room = write(NotedText(noted, unowned_state(self._optimizer), attributes)), self._rooms[buffer]
        if len(text) + _LENGTH > len(room):
            raise new_state_error(self._optimizer)
        room[: _LENGTH + len(text)] = len(text).to_bytes(_LENGTH, "little") + text
        self._text = text


def refuse_changes(optimizer: Optimizer, given: Sequence[Mapping[str, Any]]) -> None:
    """TypeError if a step has changed a param group although nothing is noted of this optimizer."""
    for own, was in zip(optimizer.param_groups, given, strict=True):
        if len(own) != len(was) or any(
            own[key] is not value and _differs(own, key, value) for key, value in was.items()
        ):
            raise new_state_error(optimizer)


def new_state_error(optimizer: Optimizer) -> TypeError:
    """The error for changes that the trial steps did not show."""
    return TypeError(
        f"optimizer: after its first steps or in a hook, {type(optimizer).__name__} added or changed entries of its "
        "param groups, which a parameter server cannot follow. Use another optimizer, or strategy ddp."
    )


def _differs(group: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether the entry differs from `value`; for tensors, whether it is another object."""
    if key not in group:
        return True
    was = group[key]
    return was is not value and (isinstance(value, Tensor) or isinstance(was, Tensor) or bool(was != value))


@dataclass
class Slot:
    """One entry of optimizer state: where it lies in both copies, and whether this process's optimizer has it yet."""

    index: int
    entry: StateEntry
    memory: tuple[Tensor, Tensor]
    bound: bool = False


@dataclass
class StructuredEntry:
    """A value of a parameter's state that is neither a tensor nor a number: its form, and the slots of its tensors."""

    parameter: Parameter
    name: str
    form: Any
    slots: list[Slot]


class SharedState:
    """The state of one shard's optimizer. `squares[i]`: what delay compensation keeps, by parameter, in state i."""

    def __init__(self, optimizer: Optimizer, plan: ShardPlan, memory: Tensor) -> None:
        self._optimizer = optimizer
        self._bytes = [plan.state_memory(memory, i) for i in (0, 1)]
        views = [plan.slots.views(part) for part in self._bytes]
        self._present = [plan.flags.views(part)[0] if plan.state_entries else None for part in self._bytes]
        self.squares = [plan.squares.views(part) for part in self._bytes]
        self.is_empty = not plan.state_bytes
        self.by_place: dict[int, list[Slot]] = {}
        """By place of the parameter in the shard."""
        holes: dict[tuple[int, str], list[Slot]] = {}
        for index, entry in enumerate(plan.state_entries):
            slot = Slot(index, entry, (views[0][index], views[1][index]))
            if entry.hole is None:
                self.by_place.setdefault(entry.parameter, []).append(slot)
            else:
                holes.setdefault((entry.parameter, entry.name), []).append(slot)
        parameters = self._parameters = parameters_of(optimizer)
        self._entries = 0  # that `refuse_new` has seen
        self._formed = [
            StructuredEntry(parameters[place], name, form, holes.get((place, name), []))
            for place, name, form in plan.forms
        ]
        self._slots = [(parameters[number], slots) for number, slots in self.by_place.items()]
        named = [(entry.parameter, entry.name) for entry in plan.state_entries]
        named += [(place, name) for place, name, _ in plan.forms]
        self._known = {
            id(parameter): frozenset(name for where, name in named if where == place)
            for place, parameter in enumerate(parameters)
        }

    def memory(self, which: int) -> Tensor:
        """All bytes of state 0 or 1 (uint8)."""
        return self._bytes[which]

    def begin_step(self, newest: int, has_copy: bool = True) -> int:
        """Before a step: copy the newest state, and give the copy to the optimizer; returns which of the two it is.
        Without `has_copy` only the entries that the optimizer has state of are there."""
        if self.is_empty:
            return 0
        other = 1 - newest
        flags, had = self._present[other], self._present[newest]
        if has_copy:
            self._bytes[other].copy_(self._bytes[newest])
        elif flags is not None and had is not None:
            flags.copy_(had)
        self.read(other)
        return other

    def present(self, which: int) -> list[bool]:
        """For each entry, whether state `which` has it."""
        flags = self._present[which]
        return [] if flags is None else flags.tolist()

    def read(self, which: int) -> None:
        """Let the optimizer of this process use copy `which` (0 or 1) of the state."""
        present = self._present[which]
        if present is None:
            return
        for parameter, slots in self._slots:
            state = self._optimizer.state.get(parameter)  # not state[...], which would make one
            for slot in slots:
                if not slot.bound:
                    if not present[slot.index]:
                        continue
                    slot.bound = True
                    state = self._optimizer.state[parameter]
                assert state is not None
                memory, number = slot.memory[which], slot.entry.number
                state[slot.entry.name] = memory if number is None else number(memory.item())
        for formed in self._formed:
            self._read_formed(formed, which, present)

    def _read_formed(self, formed: StructuredEntry, which: int, present: Tensor) -> None:
        """Read a structured value. Constants come with the rest of the parameter's state."""
        if formed.slots and present[formed.slots[0].index]:
            self._optimizer.state[formed.parameter][formed.name] = filled(
                formed.form, [slot.memory[which] for slot in formed.slots]
            )
        elif not formed.slots and (state := self._optimizer.state.get(formed.parameter)):
            state.setdefault(formed.name, filled(formed.form, []))

    def refuse_new(self) -> None:
        """TypeError if a step has made state that the trial steps did not show."""
        states = self._optimizer.state
        entries = sum(len(states.get(parameter, ())) for parameter in self._parameters)
        if entries == self._entries:
            return
        self._entries = entries
        for parameter, state in self._optimizer.state.items():
            tried = self._known.get(id(parameter), frozenset())
            if isinstance(parameter, Tensor) and not state.keys() <= tried:
                raise TypeError(
                    f"optimizer: {type(self._optimizer).__name__} added the state {min(state.keys() - tried)!r} after "
                    "its first steps, which a parameter server cannot follow. Use another optimizer, or strategy ddp."
                )

    def write(self, which: int) -> None:
        """After a step: copy into state `which` what the optimizer has not changed there itself."""
        present, states = self._present[which], self._optimizer.state
        if present is None:
            return
        for parameter, slots in self._slots:
            state = states.get(parameter, {})  # not states[...], which would make one
            for slot in slots:
                value, memory = state.get(slot.entry.name), slot.memory[which]
                if value is memory or value is None:
                    continue
                self._check(slot, value)
                memory.fill_(value) if slot.entry.number else memory.copy_(value)
                present[slot.index] = 1
                slot.bound = True
                if slot.entry.number is None:
                    state[slot.entry.name] = memory
        for formed in self._formed:
            self._write_formed(formed, which, present)

    def _write_formed(self, formed: StructuredEntry, which: int, present: Tensor) -> None:
        state = self._optimizer.state.get(formed.parameter, {})
        if (value := state.get(formed.name)) is None and formed.slots:
            return
        try:
            form, tensors = cut_out(value)
        except TypeError as error:
            raise self._changed(formed.name) from error
        if form != formed.form and formed.name in state:
            raise self._changed(formed.name)
        for slot, tensor in zip(formed.slots, tensors, strict=True):
            if tensor is not (memory := slot.memory[which]):
                self._check(slot, tensor)
                memory.copy_(tensor)
                present[slot.index] = 1
        if formed.slots:
            state[formed.name] = filled(form, [slot.memory[which] for slot in formed.slots])

    def replace(self, state: Mapping[int, Any]) -> None:
        """Load the whole state by place of parameter (`state` of a state dict), as from a checkpoint, into state 0."""
        for part in self._bytes:
            part.zero_()
        for _, slots in self._slots:
            for slot in slots:
                slot.bound = False
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": dict(state)})
        for formed in self._formed:
            loaded = self._optimizer.state.get(formed.parameter, {})
            if formed.name in loaded:  # torch makes other texts of texts there
                loaded[formed.name] = filled(formed.form, cut_out(loaded[formed.name])[1])
        self.write(0)

    def _check(self, slot: Slot, value: object) -> None:
        fits = type(value) is slot.entry.number
        if isinstance(value, Tensor):
            fits = slot.entry.number is None and value.shape == slot.memory[0].shape
        if not fits:
            raise self._changed(slot.entry.name)

    def _changed(self, name: str) -> TypeError:
        return TypeError(
            f"optimizer: {type(self._optimizer).__name__} changed the type or shape of its state {name!r} during the "
            "run, which a parameter server cannot follow. Use another optimizer, or strategy ddp."
        )


def copied(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Copies of the tensors, each with storage of its own: a deep copy of a view would copy the whole storage, here all
    of the run's memory."""
    return {key: _copied(value) for key, value in state.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value
