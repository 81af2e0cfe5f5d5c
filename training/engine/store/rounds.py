"""Rounds: several gradients, averaged, make one update. For the rules that gather (sync, softsync).

A worker writes its gradient into a slot, then registers it. When a round has the gradients that the rule needs it is
closed. Then every process that is there (waiting workers, or the server processes) applies it, one shard after the
other, each beginning with a different one: this shares the averaging as a reduce-scatter does. The gradients stay where
they are until all shards are done, so any process can replace one that dies.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from scalebook.training.engine.coordination.admission import Admission, Verdict
from scalebook.training.engine.rules.settings import Clip
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.slots import Average, Slots
from scalebook.training.engine.store.table_optimizer import dense_parts


class Rounds:
    """One optimizer's rounds, in one process. `first_shard`: the shard that this process begins with."""

    def __init__(
        self,
        admission: Admission,
        slots: Slots,
        shards: Sequence[Shard],
        clip: Clip | None,
        first_shard: int,
        deadline_s: float,
    ) -> None:
        self._admission, self._slots, self._counters, self._clip = admission, slots, admission.counters, clip
        self.order = [*range(first_shard, len(shards)), *range(first_shard)]
        self._shards, self._deadline_s = shards, deadline_s
        settings = admission.control.settings
        self._most, self._sums = settings.most(admission.control.workers), settings.local.keeps
        self._shared = len(shards) > 1 or settings.has_servers
        """Whether other processes take part in applying a round; else they do so only in place of a dead one."""

    # --- a worker's part -----------------------------------------------------------------------------------------

    def slot(self, worker: int) -> int:
        """The number of a free slot, reserved for this worker until `register`."""
        with self._admission.locked():
            gathered = self._admission.round().gathered
            used = set(self._counters.order[:gathered].tolist())
            writing = self._counters.writing.tolist()
            if any(slot >= 0 for slot in writing):
                used |= {writing[other] for other in set(self._admission.control.training()) - {worker}}
            free = next(slot for slot in range(len(self._counters.owner)) if slot not in used)
            self._counters.writing[worker] = free
            return free

    def register(self, worker: int, slot: int, base_version: int) -> Verdict | None:
        """Add a slot to the round, unless the rule drops it.

        None while the last round is closed and not yet applied everywhere: call again afterwards.
        """
        with self._admission.locked():
            if self._close():  # a round never gets more gradients than it needs
                return None
            round_ = self._admission.round()
            verdict = self._admission.takes(worker, base_version)
            if verdict is Verdict.ADMIT:
                self._counters.order[round_.gathered] = slot
                self._slots.gather(slot, first=not round_.gathered)
                self._admission.set_round(round_.version, False, round_.gathered + 1)
            self._counters.writing[worker] = -1
        return verdict

    def close(self) -> bool:
        """Close the round if it is complete, which a death or an end may also make it. True when closed."""
        round_ = self._admission.round()
        if round_.closed or not round_.gathered:
            return round_.closed  # without the lock: whoever registers a gradient asks again
        with self._admission.locked():
            return self._close()

    def _close(self) -> bool:
        """As `close`; the caller holds the admission lock."""
        round_ = self._admission.round()
        if round_.closed or not round_.gathered or self._admission.is_stopped:
            return round_.closed
        if round_.gathered < min(self._most, self._needed()):
            return False
        self._admission.set_round(round_.version, True, round_.gathered)
        if self._shared:
            self._admission.control.event.wake()
        return True

    def _needed(self) -> int:
        """Gradients that the rule needs now; the caller holds the admission lock."""
        return self._admission.rule.needed(self._admission.view())

    # --- applying ------------------------------------------------------------------------------------------------

    def commit(self, mine: Sequence[int] | None = None) -> None:
        """Apply a closed round to the shards in `mine` (None: all) that do not have it yet; no-op if none is closed.

        When the last shard has it the next round begins.
        """
        round_ = self._admission.round()
        if not round_.closed:
            return
        slots = [self._counters.order[i] for i in range(round_.gathered)]
        whole = cache(partial(self.average, slots, range(len(self._shards)))) if self._clip is not None else None
        for number in self.order if mine is None else mine:
            self._apply(number, round_.version, slots, whole)
        self._advance(round_.version)

    def _apply(self, number: int, version: int, slots: Sequence[int], whole: Callable[[], Average] | None) -> None:
        """Apply the round that makes version `version` + 1 to shard `number`, unless that has been done.

        `whole` computes the average over all shards, if gradients are clipped by their norm. Call it only after
        checking that this shard lacks the round: while any shard lacks it nobody writes to the slots, afterwards
        somebody may.
        """
        shard = self._shards[number]
        if shard.version > version:
            return
        with shard.applying:
            if shard.version == version and self._admission.round().version == version:
                with shard.serving(len(slots)):
                    average = whole() if whole is not None else self.average(slots, [number])
                    origins = [self._slots.origin(slot, number) for slot in slots]
                    shard.apply(origins, [average.gradients[i] for i in shard.plan.parameters], average.groups)

    def _advance(self, version: int) -> None:
        if any(shard.version <= version for shard in self._shards):
            return
        with self._admission.locked():
            is_last = self._admission.round().version == version
            if is_last:
                self._admission.set_round(version + 1, False, 0)
        if is_last:
            self._admission.control.event.wake()

    @torch.no_grad()
    def average(self, slots: Sequence[int], shards: Sequence[int] | range) -> Average:
        """`Slots.average` of the parameters of these shards, clipped as the settings say; the sum instead of the mean
        if workers keep their parameters (`Local.keeps`)."""
        places = [place for number in shards for place in self._shards[number].plan.parameters]
        average = self._slots.average(slots, places, is_sum=self._sums)
        if self._clip is not None:
            clip_(self._clip, average.gradients)
        return average


def clip_(clip: Clip, gradients: Sequence[Tensor | None]) -> None:
    """Clip the gradients in place; the same values as torch's clip_grad_norm_ and clip_grad_value_.

    A sparse gradient counts by its rows, duplicates summed; the other rows are 0.
    """
    present = dense_parts(gradients)
    if clip.kind == "value":
        for gradient in present:
            gradient.clamp_(-clip.limit, clip.limit)
        return
    total = torch.nn.utils.get_total_norm(present)
    factor = torch.clamp(clip.limit / (total + 1e-6), max=1.0)
    for gradient in present:
        gradient.mul_(factor.to(gradient))
