"""Buffers that training changes: each worker has its own, and policies make them one model's."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.buffer_rows import (
    Buffer,
    BufferFate,
    BufferRange,
    BufferRows,
    Changes,
    buffers_of,
    digest,
    distance,
    mean,
)
from scalebook.training.lightning.package import rank_zero_info

BufferPolicy = Literal["averaged", "of_worker_0", "per_worker", "frozen"]
NAMES: Final = 8
"""How many buffers a message names."""


class Buffers:
    """The buffers of one worker's model, or of all workers that one process simulates, and what other workers publish.

    Parameters are shared, buffers are not: a worker's forward pass changes its own. Before each push a worker publishes
    its buffers (`publish`), and before its next gradient it follows the policy (`apply_policy`). Only buffers that
    training changes take part; they are found while it trains (`Changes`). The policies:

    - `averaged`: it goes on from the mean of its own and of what others have shown since it looked last. So nobody runs
      away, and a slow worker, or one that has ended, holds nobody back. At its first look every worker but worker 0
      copies the published buffers, so that centroids chosen from a first batch are the same in all. Integers cannot be
      averaged: they are worker 0's, and so is all else in a module that changes some (a queue and its pointer).
    - `of_worker_0`: it goes on from worker 0's, as under DDP. Its own changes are lost.
    - `per_worker`: it goes on from its own. Worker 0's are validated and saved.
    - `frozen`: normalisation layers behave in training as in evaluation; all else as by default.
    - None, the default: `of_worker_0` under a synchronous rule, else `averaged`.

    Running means and variances of normalisation layers are read by no training step. Unless `of_worker_0` or
    `per_worker` is asked for they stay each worker's own, and their mean over the workers is validated and saved: each
    is an unbiased moving average over the same data, so their mean has the same expectation, and up to `workers` times
    less noise. (The variance between the workers' means, which a pooled variance would add, is of the order of that
    noise.)

    What is shown has the number of the update that it is to be part of. Under a synchronous rule nobody is two updates
    ahead of another, so of two places one always has those of the same update for all.
    """

    def __init__(
        self,
        model: Module,
        policy: BufferPolicy | None,
        synchronous: bool,
        worker: int,
        workers: int,
        memory: worker_end.Rows,
    ) -> None:
        self._policy, self._synchronous, self._worker, self._workers = policy, synchronous, worker, workers
        self._layers = [
            module for module in model.modules() if isinstance(module, _NormBase) and module.track_running_stats
        ]
        self._all = buffers_of(model)
        self._rows = BufferRows(self._all, workers, memory) if workers > 1 and self._all else None
        self._changes = Changes(self._all)
        self._members: set[int] = set()
        self._runs: list[BufferRange] = []
        self._common: dict[int, set[int]] = {}  # by worker, those of MEAN that it has had in common with others
        self._seen: dict[int, list[int]] = {}  # by worker, the newest label that it has taken of each other's
        self._flagged: set[int] = set()  # workers whose head says all that there is to say of the members
        self._own: list[tuple[BufferRange, Tensor]] = []  # this worker's, while it shows the mean
        self._looks = 0

    # --- before training -----------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Allocate the shared memory, in worker 0, before the others share."""
        if self._rows is not None:
            self._rows.allocate()

    def share(self, meetings: worker_end.MessageExchange | None) -> None:
        """Start to share, when the model is on its device. Buffers that differ between the workers, since each has
        drawn its own, start as worker 0's; a restarted worker resumes what it published last. `meetings` is None if one
        process simulates all workers."""
        if self._rows is None:
            return
        self._rows.map()
        if self._policy not in ("of_worker_0", "per_worker", "frozen"):
            self._join({number for number, buffer in enumerate(self._all) if buffer.is_statistic})
        if meetings is not None:
            self._begin_as_worker_0(meetings, self._rows)
            self._go_on()

    def _begin_as_worker_0(self, meetings: worker_end.MessageExchange, rows: BufferRows) -> None:
        packed = struct.pack(f"{len(self._all)}I", *(digest(buffer.now) for buffer in self._all))
        messages = list(meetings.gather_before_training(packed, "the first buffers").values())
        if any(len(message) != len(packed) for message in messages):
            raise ValueError(
                "model: workers have created different numbers of buffers. Create the same model in every worker, "
                "whatever its rank."
            )
        digests = [struct.unpack(f"{len(self._all)}I", message) for message in messages]
        differ = [number for number, values in enumerate(zip(*digests, strict=True)) if len(set(values)) > 1]
        runs = rows.runs(differ, lambda _: BufferFate.FIRST)
        if self._worker == 0 and differ:
            for run in runs:
                rows.values(0, 0, run).copy_(self._flat(run))
            rows.given[0, differ] = 1
            rows.publish_head(0, runs)
        meetings.gather_before_training(b"", "worker 0's first buffers")
        rows.fetch_heads()
        if self._worker > 0 and differ and rows.given[0, differ].all():
            for run in runs:
                self._put(run, rows.fetch(run, 0, 0))

    def _go_on(self) -> None:
        """A worker that was started again: with what its row has."""
        assert self._rows is not None
        place = self._rows.newest(self._worker)
        if place is None:
            return
        self._adopt()
        for run in self._runs:
            for worker, there in self._rows.readable_places(run, [(self._worker, place)]):
                self._put(run, self._rows.values(worker, there, run))
                self._common.setdefault(worker, set()).update(run.numbers)

    def begin_watching(self) -> None:
        """Count changes from now on as training's: at its start, and when it goes on after a validation."""
        if self._rows is not None:
            self._changes.begin_watching()

    def freeze(self) -> None:
        """Under the policy `frozen`, after `model.train()`: normalisation layers behave as in evaluation."""
        if self._policy == "frozen":
            for layer in self._layers:
                layer.eval()

    # --- with each push ------------------------------------------------------------------------------------------

    def now(self) -> list[Tensor]:
        """All buffers of the model, as they are."""
        return [torch.empty(0) if (now := buffer.now) is None else now for buffer in self._all]

    def publish(self, worker: int, version: int) -> None:
        """Publish the model's buffers, which are `worker`'s, before a push from `version`.

        ValueError for what cannot be shared.
        """
        if self._rows is None:
            return
        self._find()
        if not self._runs:
            return
        place = self._rows.next_place(worker, version + 1)
        for run in self._runs:
            self._rows.values(worker, place, run).copy_(self._flat(run))
        if worker not in self._flagged:
            self._flag(worker, version + 1)
        self._rows.labels[worker, place] = version + 1
        self._rows.publish_head(place, self._runs)

    def apply_policy(self, worker: int, version: int, into: list[Tensor] | None = None) -> None:
        """Update the buffers by the policy, from what others have published; `version`: the version that this worker
        has pulled.

        `into`: the worker's buffers, if the model does not have them at present.
        """
        if self._rows is None:
            return
        self._looks += 1
        common = any(run.fate in (BufferFate.MEAN, BufferFate.FIRST) for run in self._runs)
        if not common and self._looks & (self._looks - 1):  # now and then: others may have changed what this has not
            return
        self._rows.fetch_heads()
        self._adopt()
        most = version if self._synchronous else None
        seen = self._seen.setdefault(worker, [0] * self._workers)
        places = {
            other: place for other in range(self._workers) if (place := self._rows.newest(other, most)) is not None
        }
        new = [
            (one, place) for one, place in places.items() if one != worker and self._rows.labels[one, place] > seen[one]
        ]
        latest = [int(self._rows.labels[one, places[one]]) if one in places else 0 for one in range(self._workers)]
        for run in self._runs:
            if run.fate is BufferFate.FIRST and worker > 0 and 0 in places:
                for first, place in self._rows.readable_places(run, [(0, places[0])]):
                    self._put(run, self._rows.values(first, place, run), into)
            elif run.fate is BufferFate.MEAN:
                self._take_mean(run, worker, new, into)
        self._seen[worker] = [max(before, now) for before, now in zip(seen, latest, strict=True)]

    def _take_mean(self, run: BufferRange, worker: int, new: list[tuple[int, int]], into: list[Tensor] | None) -> None:
        assert self._rows is not None
        parts = {other: self._rows.values(other, place, run) for other, place in self._rows.readable_places(run, new)}
        if not parts:
            return
        common = self._common.setdefault(worker, set())
        if worker == 0 or common.issuperset(run.numbers):
            parts[worker] = self._flat(run, into).cpu()
        else:
            common.update(run.numbers)
            self._flagged.discard(worker)
        self._put(run, mean([parts[other] for other in sorted(parts)]), into)

    # --- what is validated ---------------------------------------------------------------------------------------

    def show_mean(self, living: Sequence[int]) -> None:
        """Put the mean of the running statistics of those `living` workers that have trained into this worker's model.
        Its own are saved, and no other worker sees a change."""
        if self._own:
            return
        for run, values in self._shown(living, lambda run: run.fate is BufferFate.VALIDATED):
            self._own.append((run, self._flat(run).clone()))
            self._put(run, mean(values))

    @property
    def shows_mean(self) -> bool:
        """Whether the model has the mean statistics at present."""
        return bool(self._own)

    def show_own(self) -> None:
        """Restore this worker's own statistics."""
        for run, values in self._own:
            self._put(run, values)
        self._own = []

    def apart(self, living: Sequence[int]) -> float | None:
        """The largest distance of any worker's buffer from the workers' mean, before averaging, relative to the mean's
        norm. None if training changes no such buffers."""
        largest = None
        for run, values in self._shown(
            living, lambda run: run.fate is not BufferFate.VALIDATED and _is_number(run.dtype)
        ):
            for parts in zip(*(torch.split(value, run.sizes) for value in values), strict=True):
                largest = max(largest or 0.0, distance(parts))
        return largest

    def _shown(
        self, living: Sequence[int], test: Callable[[BufferRange], bool]
    ) -> Iterator[tuple[BufferRange, list[Tensor]]]:
        """The newest of these workers, of such runs as somebody shows."""
        runs = [run for run in self._runs if test(run)]
        if self._rows is None or not runs:
            return
        self._rows.fetch_heads()
        places = [(worker, place) for worker in living if (place := self._rows.newest(worker)) is not None]
        for run in runs:
            if there := self._rows.readable_places(run, places):
                yield run, [self._rows.values(worker, place, run) for worker, place in there]

    # --- who takes part, and how -----------------------------------------------------------------------------------

    def _find(self) -> None:
        """Let those take part that training has changed; say once which, and what becomes of them."""
        changed = {number for number in self._changes.pop_changed() if self._takes_part(self._all[number])}
        looked_at = [number for run in self._runs if run.fate is not BufferFate.VALIDATED for number in run.numbers]
        odd = {number for number in changed.union(looked_at) if not self._all[number].has_its_layout}
        for number in odd:
            buffer = self._all[number]
            if not buffer.is_cache and self._policy != "per_worker":
                raise ValueError(
                    f"model: buffer {buffer.name} was {buffer.first} and is {buffer} now, but shared buffers must keep "
                    "their shape and type. Create this buffer in __init__ with its final shape and type. If the first "
                    "batch initialises it, call self(batch) in configure_model. Or set the strategy's buffers to "
                    "per_worker."
                )
        if odd & self._members:
            self._members -= odd
            self._lay()
        self._join(changed - odd)

    def _adopt(self) -> None:
        """Let those take part that another worker has found."""
        assert self._rows is not None
        new = {int(number) for number in (self._rows.since != 0).any(0).nonzero()[0]} - self._members
        self._join({number for number in new if self._all[number].has_its_layout})

    def _join(self, numbers: set[int]) -> None:
        if not numbers:
            return
        self._members |= numbers
        for number in numbers:
            self._changes.know(number)
        self._lay()
        if self._worker == 0:
            self._announce(number for number in numbers if self._fate(number) is not BufferFate.VALIDATED)

    def _lay(self) -> None:
        assert self._rows is not None
        self._flagged.clear()
        self._runs = self._rows.runs(sorted(self._members), self._fate)

    def _takes_part(self, buffer: Buffer) -> bool:
        """What normalisation layers count and gather is their own affair, unless all are to have worker 0's."""
        return not isinstance(buffer.module, _NormBase) or self._policy == "of_worker_0"

    def _fate(self, number: int) -> BufferFate:
        buffer, policy = self._all[number], self._policy
        if policy == "per_worker":
            return BufferFate.OWN
        if buffer.is_statistic and policy != "of_worker_0":
            return BufferFate.VALIDATED
        if policy == "of_worker_0" or (policy != "averaged" and self._synchronous):
            return BufferFate.FIRST
        beside = {self._all[member].module for member in self._members if not _is_number(self._all[member].dtype)}
        return BufferFate.MEAN if _is_number(buffer.dtype) and buffer.module not in beside else BufferFate.FIRST

    def _announce(self, numbers: Iterable[int]) -> None:
        by_fate: dict[BufferFate, list[str]] = {}
        for number in sorted(numbers):
            by_fate.setdefault(self._fate(number), []).append(self._all[number].name)
        for fate, named in by_fate.items():
            names = ", ".join(named[:NAMES]) + (f" and {len(named) - NAMES} more" if len(named) > NAMES else "")
            rank_zero_info(
                f"AsyncPS: training changes buffers of the model. These buffers {fate.value}: {names} (see the "
                "strategy's buffers argument)."
            )

    def _flag(self, worker: int, label: int) -> None:
        """Say in the worker's head from when on what counts."""
        assert self._rows is not None
        since, common = self._rows.since[worker], self._common.get(worker, set())
        for run in self._runs:
            for number in run.numbers:
                if since[number] <= 0:
                    counts = run.fate is not BufferFate.MEAN or worker == 0 or number in common
                    since[number] = label if counts else -1
        self._flagged.add(worker)

    # --- the model's -------------------------------------------------------------------------------------------------

    def _flat(self, run: BufferRange, values: list[Tensor] | None = None) -> Tensor:
        tensors = [self._all[number].now if values is None else values[number] for number in run.numbers]
        flats = [tensor.detach().reshape(-1) for tensor in tensors if tensor is not None]
        if len({tensor.device for tensor in flats}) > 1:
            flats = [tensor.cpu() for tensor in flats]
        return torch.cat(flats)

    def _put(self, run: BufferRange, flat: Tensor, into: list[Tensor] | None = None) -> None:
        for number, part in zip(run.numbers, torch.split(flat, run.sizes), strict=True):
            buffer = self._all[number]
            target = buffer.now if into is None else into[number]
            if target is None or target.is_inference():  # somebody has put another one there in a validation
                buffer.module._buffers[buffer.key] = part.view(buffer.shape).clone()
            else:
                target.detach().copy_(part.view(buffer.shape))


def _is_number(dtype: torch.dtype) -> bool:
    """Whether it makes sense to average such numbers."""
    return dtype.is_floating_point or dtype.is_complex
