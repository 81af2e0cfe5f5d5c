"""A worker's copy of the parameters: on a CPU the newest version itself, else a copy of it."""

from collections.abc import Sequence, Set
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.memory.cow_mapping import CowMapping
from scalebook.training.engine.memory.device import Image, Registered, landing
from scalebook.training.engine.store.coded_traffic import CodedPulls
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest, Shard
from scalebook.training.engine.store.table_shard import Tables

COMPARED: Final = 8
"""How many times, at first, a replica in memory of its own is compared in full, twice in each step: in-place writes
through `.data` leave no other trace."""


class SharedTables:
    """The sparse tables of one optimizer in one worker. They have no versions: workers compute with rows as of the
    version held (`TableReads`)."""

    def __init__(self, shards: Sequence[Shard], parameters: Sequence[Parameter], lending: CowMapping | None) -> None:
        self._shards, self._parameters, self._lending = shards, parameters, lending
        self._place = {
            place: (shard, i) for shard in shards if shard.plan.tables for i, place in enumerate(shard.plan.parameters)
        }
        self.places = {table.place for shard in shards for table in shard.plan.tables}
        self._seen: list[tuple[int, int]] = []

    def lent(self, place: int) -> Tensor:
        """The table at this place, copy-on-write: writes stay in this process."""
        if self._lending is None:
            return self.weight(place)
        shard, index = self._place[place]
        plan = shard.plan.tables[_tables(shard).at[index]]
        return self._lending.views(plan.columns, plan.at)[0]

    def weight(self, place: int) -> Tensor:
        """The table that all workers share."""
        shard, index = self._place[place]
        return _tables(shard).weight(index)

    def watch(self, frozen: Set[int]) -> None:
        """Start to watch for writes."""
        self._seen = self._marks(frozen)

    def marked(self, frozen: Set[int]) -> list[int]:
        """Places of tables that were written into by name, or replaced by another tensor."""
        marks = zip(sorted(self.places - frozen), self._marks(frozen), self._seen, strict=True)
        return [place for place, now, before in marks if now != before]

    def written(self) -> list[int]:
        """Places of tables whose lent memory was written into, also through `.data`."""
        if self._lending is None:
            return []
        tables = [table for shard in self._shards for table in shard.plan.tables]
        return [table.place for table in tables if 0 in self._lending.written(table.columns, table.at)]

    def drop(self) -> None:
        """Discard writes into lent memory."""
        if self._lending is not None:
            for shard in self._shards:
                for table in shard.plan.tables:
                    self._lending.drop(table.columns, table.at)

    def _marks(self, frozen: Set[int]) -> list[tuple[int, int]]:
        tables = [self._parameters[place] for place in sorted(self.places - frozen)]
        return [(table._version, table.data_ptr()) for table in tables]


def _tables(shard: Shard) -> Tables:
    assert shard.tables is not None
    return shard.tables


class Replica:
    """The parameters of one optimizer in one worker; `load_versions` makes them those of held versions.

    `lent`: on a CPU the parameters are views into the versions that this worker holds, so nothing is copied; the
    parameters change their storage with the version, and writes into them stay in this process (`CowMapping`).
    Otherwise (on a GPU, or with local steps) they lie in memory of their own and are copied, asynchronously by a device
    (`memory/device.py`); a version is held until its copy is complete.

    A parameter that does not require a gradient when training begins belongs to the worker alone, as buffers do: no
    update changes it, only code that writes into it (a target network). It is shared once it requires a gradient.
    """

    def __init__(
        self,
        partition: OptimizerPartition,
        parameters: Sequence[Parameter],
        own: bool,
        lending: CowMapping | None = None,
        worker: int = 0,
        decodes: bool = True,
    ) -> None:
        self.parameters = list(parameters)
        self.frozen = {place for place, p in enumerate(self.parameters) if not p.requires_grad}
        self._shards = partition.shards
        self._device = partition.device
        self.lent = not own and self._device.is_host
        self._lending = lending if self.lent else None
        self._views = [self._lent_views(shard) for shard in range(len(self._shards))] if self.lent else []
        self._place = {
            place: (s, i) for s, shard in enumerate(self._shards) for i, place in enumerate(shard.plan.parameters)
        }
        self._tables = SharedTables(self._shards, self.parameters, self._lending)
        self.tables = self._tables.places
        """Places of the sparse tables. Their parameters are always the present ones, and read row by row."""
        self._sizes = [self._bytes_of(shard, frozenset()) for shard in self._shards]
        self._images = [] if self.lent else [self._image(shard) for shard in self._shards]
        self._own = {
            place: view
            for shard, image in zip(self._shards, self._images, strict=False)
            for place, view in zip(shard.plan.parameters, image.views, strict=True)
        }
        self._flying = self._device.record()
        self._known: list[tuple[Tensor, Registered]] = []  # by shard, where frames are decoded
        self._pulls = self._coded(partition, worker) if decodes else None
        self._held: list[Newest] = []
        self._held_at: list[int] = []  # by shard, the byte where the version held begins
        self._touched = self._stepped = False
        self._kept: dict[int, Tensor] = {}  # by place, what a step of its own has made, if that was copied
        self._homes: dict[int, Tensor] = {}  # and the memory where it was
        self._copies_for, self._has_writers = COMPARED, False  # checks ahead; whether anybody ever wrote
        self._watch()

    def load_versions(self, versions: Sequence[Newest], whole: bool = False) -> Sequence[int]:
        """Load these versions, one for each shard, which the worker holds. Earlier writes are lost.

        Returns the bytes taken by shard, whether copied, lent or in frames. With a codec the replica gets the decoded
        values, unless `whole` asks for the versions themselves, as at first.
        """
        if self._touched:
            self._drop()
        self.await_copy()  # the last ones, which went to the same memory
        first, self._held, self._stepped = not self._held, list(versions), False
        self._held_at = [s.plan.version_at(v.buffer) for s, v in zip(self._shards, versions, strict=True)]
        if self._pulls is not None and not (first or whole):
            return self._decode(self._pulls, versions)
        for number, newest in enumerate(versions):
            self._take_shard(number, newest, first)
        self._flying = self._device.record()
        if self._pulls is not None:
            self._pulls.know(versions, self._shards)
        self._watch()
        if first or not self.frozen:
            return self._sizes
        return [self._bytes_of(shard, self.frozen) for shard in self._shards]

    def _take_shard(self, number: int, newest: Newest, first: bool) -> None:
        shard = self._shards[number]
        source = shard.views[newest.buffer]
        if not self.lent:
            self._images[number].up(shard.flats[newest.buffer])
        lent = self._views[number][newest.buffer] if self.lent else source
        for place, view, shared in zip(shard.plan.parameters, lent, source, strict=True):
            if place in self.tables:
                if place not in self.frozen:
                    self.parameters[place].data = self._tables.lent(place)
            elif place in self.frozen:
                if first:
                    self.parameters[place].data = shared.to(self.parameters[place].device, copy=True)
            else:
                self.parameters[place].data = view if self.lent else self._own[place]

    def await_copy(self) -> None:
        """Wait until the last load is complete and nobody reads the versions held any more. Needed before others are
        held; a push need not wait, since its gradients come after the copy."""
        self._device.wait(self._flying)

    def _decode(self, pulls: CodedPulls, versions: Sequence[Newest]) -> Sequence[int]:
        sizes = []
        for number, (shard, newest) in enumerate(zip(self._shards, versions, strict=True)):
            sizes.append(pulls.advance(number, shard.views[newest.buffer], self.frozen))
            self._images[number].up(self._known[number][0])  # while the next shard's frame is decoded
        self._flying = self._device.record()
        for place, own in self._own.items():
            if place not in self.frozen:
                self.parameters[place].data = own
        self._stepped, self._kept, self._homes = True, dict(enumerate(pulls.known)), self._own
        self._watch()
        return sizes

    def seen(self, versions: Sequence[Newest]) -> dict[int, Tensor]:
        """By place, the parameters of these versions, one for each shard, to read: lent, or copies. Nothing is loaded,
        and parameters that are this worker's alone are left out."""
        self._open(versions)
        by_place = {}
        for number, (shard, newest) in enumerate(zip(self._shards, versions, strict=True)):
            views = self._views[number][newest.buffer] if self.lent else shard.views[newest.buffer]
            for place, view in zip(shard.plan.parameters, views, strict=True):
                if place not in self.frozen and place not in self.tables:
                    by_place[place] = view if self.lent else view.to(self.parameters[place].device, copy=True)
        return by_place

    def open(self) -> None:
        """For the simulator: user code may write into the parameters from now on."""
        self._open(self._held)

    def _open(self, versions: Sequence[Newest]) -> None:
        if self._lending is not None:
            for shard, newest in zip(self._shards, versions, strict=True):
                self._lending.open(shard.plan.version, shard.plan.version_at(newest.buffer))

    # --- what others write into the parameters -------------------------------------------------------------------

    def written(self, thorough: bool = False) -> list[int]:
        """Places of the parameters that differ from the versions held, since somebody has written into them.

        On a CPU every write is found. In memory of the replica's own, in-place writes through `.data` are found only
        when `thorough`, which compares everything. Without a copy of what its last step has made, any other write
        counts, and these are not found.
        """
        if not self._held:
            return []
        differing = [place for place in self.frozen if self._is_thawed(place)]
        pointers = [p.data_ptr() for p in self._shared]
        if pointers != self._pointers:
            differing += [place for place, a, b in zip(self._places, pointers, self._pointers, strict=True) if a != b]
        if self._lending is not None:
            for shard, offset in zip(self._shards, self._held_at, strict=True):
                fields = self._lending.written(shard.plan.version, offset)
                self._touched |= bool(fields)
                differing += [place for i in fields if (place := shard.plan.parameters[i]) not in self.frozen]
            if self.tables:
                differing += self._written_tables(thorough)
        elif [p._version for p in self._shared] != self._counters or thorough:
            differing += self._places
        if not (differing or self._stepped):
            return []
        if self._stepped:
            self._copies_for -= 1
            counted = [place for place in self._places if self._counted(place)] if differing else []
            self._has_writers |= bool(counted)
            if not self._kept:
                return counted
        if self._stepped:  # a parameter that never got a gradient is not copied: it is this worker's own
            differing = [place for place in differing if place in self._kept]
        written = sorted(place for place in set(differing) if self._differs(place))
        if self._stepped and not written and pointers != self._pointers:
            self._bring_home()
        return written

    @torch.no_grad()
    def _bring_home(self) -> None:
        """Somebody has put other tensors into the parameters, with the same values."""
        for place in self._places:
            if self.parameters[place].data_ptr() != self._homes[place].data_ptr():
                self.parameters[place].data = self._homes[place].copy_(self._kept[place])

    def _written_tables(self, thorough: bool) -> list[int]:
        in_place = self._tables.written() if thorough else []
        self._touched |= bool(in_place)
        return self._tables.marked(self.frozen) + in_place

    def adopt(self, places: Sequence[int]) -> None:
        """Copy these parameters into the versions held, which nobody else may be using."""
        self.await_copy()
        values = {p: self.parameters[p].detach() for p in places}
        values = {place: value if place in self.tables else value.clone() for place, value in values.items()}
        for place, value in values.items():
            view = self._published(place)
            if value.shape != view.shape:
                raise ValueError(
                    f"model: a parameter has changed its shape from {list(view.shape)} to {list(value.shape)}."
                )
            view.copy_(value)
        self._touched |= not self.tables.isdisjoint(places)
        self.frozen -= set(places)
        self.load_versions(self._held, whole=True)

    def unfreeze(self) -> None:
        """Share parameters that require a gradient by now, from the next load on."""
        if self.frozen:
            self.frozen = {place for place in self.frozen if not self._is_thawed(place)}

    def discard(self) -> None:
        """Restore the versions held, whatever was written."""
        self._touched = True
        self.load_versions(self._held, whole=True)

    @torch.no_grad()
    def step(self, groups: Groups) -> None:
        """Make a plain SGD step on this replica."""
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-float(group["lr"]))
        self._step_made()

    def watch_closely(self) -> None:
        """Copy what this step and the next few have made: others may write into the parameters, and restore them."""
        self._copies_for = COMPARED
        if self._stepped and not self._kept:
            self._keep()

    def _step_made(self) -> None:
        """The parameters are as no version is. To compare them with, a copy is kept for the first checks, and in a
        program that writes into parameters; it takes as long as a third of the step."""
        self._stepped, self._kept = True, {}
        self._watch()
        if self._copies_for > 0 or self._has_writers:
            self._keep()

    def _keep(self) -> None:
        self._homes = {place: self.parameters[place].data for place in self._places}
        self._kept = {place: home.clone() for place, home in self._homes.items()}

    def _watch(self) -> None:
        own = self.frozen | self.tables
        self._places = [place for place in range(len(self.parameters)) if place not in own]
        if self.tables:
            self._tables.watch(self.frozen)
        self._shared = [self.parameters[place] for place in self._places]
        self._pointers = [p.data_ptr() for p in self._shared]
        self._counters = [p._version for p in self._shared] if self._lending is None else []

    def _is_thawed(self, place: int) -> bool:
        parameter = self.parameters[place]
        return parameter.requires_grad or parameter.grad is not None

    def _counted(self, place: int) -> bool:
        index = self._places.index(place)
        parameter = self._shared[index]
        return parameter._version != self._counters[index] or parameter.data_ptr() != self._pointers[index]

    def _published(self, place: int) -> Tensor:
        if place in self.tables:
            return self._tables.weight(place)
        shard, index = self._place[place]
        return self._shards[shard].views[self._held[shard].buffer][index]

    def _unwritten(self, place: int) -> Tensor:
        """What the parameter is if nobody has written into it."""
        return self._kept[place] if self._stepped and self._kept else self._published(place)

    def _differs(self, place: int) -> bool:
        self.await_copy()
        with torch._C.DisableTorchFunctionSubclass():  # on another machine a table's weight lets nobody else read it
            mine, other = self.parameters[place].detach(), self._unwritten(place)
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return True
        other = other.to(mine.device)
        same = torch.equal(mine, other) or bool(((mine == other) | (mine.isnan() & other.isnan())).all())
        return not same

    def is_rounded(self, place: int) -> bool:
        """Whether a write changed a parameter by no more than rounding."""
        self.await_copy()
        return rounded(self.parameters[place].detach(), self._unwritten(place))

    def _drop(self) -> None:
        if self._lending is not None:
            for shard, held in zip(self._shards, self._held, strict=True):
                self._lending.drop(shard.plan.version, shard.plan.version_at(held.buffer))
            self._tables.drop()
        self._touched = False

    def privatise(self) -> None:
        """Give the parameters memory of their own until the next load, so that they may be written to."""
        if self.lent and self._lending is None:
            for place in self._places:
                self.parameters[place].data = self.parameters[place].data.clone()
            self._watch()

    def detach(self) -> None:
        """Give every parameter memory of its own for good."""
        self.await_copy()
        if self._lending is not None:  # it is lent, privately, and this worker's hold on the version stays
            self._lending.close()
            return
        for place in self._places:
            self.parameters[place].data = self.parameters[place].data.clone()

    # --- gradients and memory ------------------------------------------------------------------------------------

    def await_gradients(self) -> None:
        """Wait for the backward pass: a GPU computes while Python goes on."""
        self._device.wait(self._device.record())

    def gradients(self) -> list[Tensor | None]:
        """The gradients, where they were computed; None if there is none."""
        return [parameter.grad for parameter in self.parameters]

    def _bytes_of(self, shard: Shard, without: Set[int]) -> int:
        return sum(
            self.parameters[place].nbytes
            for place in shard.plan.parameters
            if place not in without and place not in self.tables
        )

    def _lent_views(self, number: int) -> list[list[Tensor]]:
        """The lent views of each buffer of one shard."""
        shard = self._shards[number]
        if self._lending is None:
            return shard.views
        plan = shard.plan
        if not plan.version_bytes:
            return [self._lending.views(plan.version, plan.versions_at)] * plan.buffers
        ends_at = plan.version_at(plan.buffers)
        return self._lending.versions(plan.version, range(plan.versions_at, ends_at, plan.version_bytes))

    def _coded(self, partition: OptimizerPartition, worker: int) -> CodedPulls | None:
        settings = partition.control.settings
        if not settings.pull_codec.codes:
            return None
        self._known = [landing(shard.plan.version.nbytes, self._device) for shard in self._shards]
        views: dict[int, Tensor] = {}
        for shard, (memory, _) in zip(self._shards, self._known, strict=True):
            views.update(zip(shard.plan.parameters, shard.plan.version.views(memory), strict=True))
        pulled = [views[place] for place in range(len(self.parameters))]
        return CodedPulls(partition.plan, settings.pull_codec, worker, pulled)

    def _image(self, shard: Shard) -> Image:
        places = [self.parameters[place].device for place in shard.plan.parameters]
        return Image(self._device, shard.plan.version.fields, places)


def rounded(mine: Tensor, other: Tensor) -> bool:
    """Whether two tensors differ by no more than a swap there and back may leave: 64 times the rounding of the norm."""
    if mine.shape != other.shape or mine.dtype != other.dtype or not mine.is_floating_point():
        return False
    other = other.to(mine.device)
    return bool((mine - other).norm() <= 64 * torch.finfo(mine.dtype).eps * other.norm())
