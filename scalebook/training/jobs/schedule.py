"""Who starts next, on which devices, and why the others wait. Pure: no clock, no files, no processes.

Jobs go by priority, then by age. A job of W workers with T threads holds min(W x T, all) cores of one machine, and on
GPUs min(W, all) of them besides; a trial whose times are compared holds a whole machine. One that runs on N machines
holds as much of each, all at once or nothing, so two of them never wait for each other; so does one that is spread,
because no machine has devices for all its workers. What the first job that cannot start yet needs is kept free for it
(backfilling: Lifka, "The ANL/IBM SP scheduling system", 1995). One behind it passes

- with devices that the first will not need, in whatever order the jobs that run end;
- where all that is known by estimate: with devices that it will not need when it can start, or with any, when it will
  have ended by then. A job lasts, by estimate, as long as the longest one of the same config has.

Where an estimate is lacking only the first holds. Whether it is known when the first can start is told by those alone
that went before it: once they have ended, nobody passes it by an estimate any more. So nobody starves, also where
estimates are wrong.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from scalebook.training.jobs.devices import Lent, Machine
from scalebook.training.jobs.folder import JobFolder, JobRequest, Started
from scalebook.training.jobs.reasons import Holder, Lack, lack_words, no_data_words, too_few_words
from scalebook.training.jobs.spreading import holds, placed, why_not

STARTS = "starts now"
Item = TypeVar("Item", int, str)


@dataclass(frozen=True)
class Lease:
    """A job, running or about to, and the devices it holds. `left_s` is the estimate of its remaining time, s."""

    id: str
    name: str
    cores: list[int]
    gpus: list[str] = field(default_factory=list)
    left_s: float | None = None
    machine: str = ""
    place: tuple[float, float, str] | None = None
    """`place_of` its request; None for one that went before all that wait."""
    others: list[Lent] = field(default_factory=list)
    """What it holds of other machines than `machine`."""

    def on(self, machine: Machine) -> "Lease | None":
        """What of it is this machine's."""
        for lent in (Lent(self.machine, self.cores, self.gpus), *self.others):
            if lent.machine == machine.name:
                return replace(self, cores=lent.cores, gpus=lent.gpus, machine=lent.machine, others=[])
        return None

    @classmethod
    def of(cls, job: JobFolder, started: Started, left_s: float | None = None) -> "Lease":
        """The lease of a job that runs."""
        place = None if started.inline else place_of(job.queued())
        title, (first, *others) = job.request().title, started.lent
        return cls(job.id, title, first.cores, first.gpus, left_s, first.machine, place, others)


class Start(NamedTuple):
    """A job that can start at once: `cores` to pin it to, UUIDs of the `gpus` it may see, on a machine."""

    request: JobRequest
    cores: list[int]
    gpus: list[str]
    machine: str = ""
    lasts_s: float | None = None
    """How long, by estimate."""
    others: Sequence[Lent] = ()
    """What it gets of other machines."""

    @property
    def lease(self) -> Lease:
        asked, others = self.request, list(self.others)
        return Lease(asked.id, asked.title, self.cores, self.gpus, self.lasts_s, self.machine, place_of(asked), others)


@dataclass(frozen=True)
class Plan:
    """`reasons` has one entry for every waiting job, also for those that start."""

    starts: list[Start]
    reasons: dict[str, str]


def cores_wanted(request: JobRequest, machine: Machine) -> int:
    if _alone(request):
        return len(machine.cores)
    return min(max(1, request.workers * request.threads), len(machine.cores))


def gpus_wanted(request: JobRequest, machine: Machine) -> int:
    if _alone(request):
        return len(machine.gpus)
    return min(max(1, request.workers), len(machine.gpus)) if request.accelerator == "gpu" else 0


def _alone(request: JobRequest) -> bool:
    return request.trial is not None and request.trial.exclusive


def _holds_all(request: JobRequest) -> bool:
    return request.trial is not None and request.trial.holds_all


def place_of(request: JobRequest) -> tuple[float, float, str]:
    """The job's place in the queue, to sort by: higher priority first, then the older one; the id decides between
    twins."""
    return -request.priority, request.created, request.id


def in_order(waiting: Sequence[JobRequest]) -> list[JobRequest]:
    return sorted(waiting, key=place_of)


def plan(
    waiting: Sequence[JobRequest],
    running: Sequence[Lease],
    machines: Sequence[Machine],
    lasts: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """Devices for as many waiting jobs as can start now, and a reason in plain words for each of the others.

    `lasts`: how long a waiting job will take by estimate, s, by id, where that is known.
    """
    places = [_Place(machine, [part for lease in running if (part := lease.on(machine))]) for machine in machines]
    starts: list[Start] = []
    reasons: dict[str, str] = {}
    blocked = 0
    for asked in in_order(waiting):
        request = placed(asked, machines)
        fit = [place for place in places if request.accelerator != "gpu" or place.machine.gpus]
        if request is not asked:
            fit = [place for place in fit if holds(place.machine, request)]
        with_data = [place for place in fit if not place.machine.lacks(request.stays)]
        if len(with_data) < min(len(fit), request.nodes):
            reasons[request.id] = no_data_words(request.stays, machines)
            continue
        fit = with_data
        if not fit:
            is_named = any(machine.name for machine in machines)
            reasons[request.id] = f"waits for a GPU; {'no machine has one' if is_named else 'this machine has none'}"
            continue
        if len(fit) < request.nodes:
            there = [place.machine for place in fit]
            reasons[request.id] = too_few_words(request.nodes, there, request.accelerator == "gpu")
            continue
        lasts_s = lasts.get(request.id)
        lacking = partial(_Place.lacking, request=request, lasts_s=lasts_s)
        nearest = sorted(fit, key=lacking)[: request.nodes]
        beside = [place for place in places if place not in nearest] if _holds_all(request) else []
        worst = max(*nearest, *beside, key=lacking) if len(nearest) + len(beside) > 1 else nearest[0]
        if lacking(worst) == 0:
            first, *others = [place.lend(request, lasts_s) for place in nearest]
            others += [replace(place.lend(request, lasts_s), idle=True) for place in beside]
            starts.append(Start(asked, first.cores, first.gpus, first.machine, lasts_s, others))
            reasons[request.id] = STARTS
        else:
            why = why_not(request, machines)
            reasons[request.id] = _behind(blocked) or f"{_reason(request, worst)}{f'; {why}' if why else ''}"
            for place in (*nearest, *beside):
                place.reserve(request)
            blocked += 1
    return Plan(starts, reasons)


class _Place:
    """What of a machine can be lent while a plan is made."""

    def __init__(self, machine: Machine, running: list[Lease]) -> None:
        self.machine, self.leases = machine, running
        self.uuids = [gpu.uuid for gpu in machine.gpus]
        self.cores = _free(machine.cores, [core for lease in running for core in lease.cores])
        self.gpus = _free(self.uuids, [gpu for lease in running for gpu in lease.gpus])
        self._kept_cores: list[int] = []
        self._kept_gpus: list[str] = []
        """Of these the ones that are kept for who waits."""
        self._until = math.inf
        """When the first that waits can start, s from now; -inf where that is not known."""

    def lacking(self, request: JobRequest, lasts_s: float | None) -> int:
        """How many devices must become free before the job can start."""
        free_cores, free_gpus = self._free_for(lasts_s)
        cores = cores_wanted(request, self.machine) - len(free_cores)
        return max(0, cores) + max(0, gpus_wanted(request, self.machine) - len(free_gpus))

    def lend(self, request: JobRequest, lasts_s: float | None) -> Lent:
        free_cores, free_gpus = self._free_for(lasts_s)
        cores = free_cores[: cores_wanted(request, self.machine)]
        gpus = free_gpus[: gpus_wanted(request, self.machine)]
        self.cores, self.gpus = _free(self.cores, cores), _free(self.gpus, gpus)
        self._kept_cores, self._kept_gpus = _free(self._kept_cores, cores), _free(self._kept_gpus, gpus)
        lease = Start(request, cores, gpus, self.machine.name, lasts_s).lease
        self.leases.append(lease)
        return Lent(lease.machine, cores, gpus)

    def reserve(self, request: JobRequest) -> None:
        """Keep for a job that cannot start what others could delay it by; for those after the first all it needs."""
        cores, gpus = cores_wanted(request, self.machine), gpus_wanted(request, self.machine)
        free_cores, free_gpus = _free(self.cores, self._kept_cores), _free(self.gpus, self._kept_gpus)
        if self._until == math.inf:
            self._until, extra_cores, extra_gpus = self._expected_start(request)
            extra_cores = max(extra_cores, _spare(cores - len(free_cores), self.held_cores().values()))
            extra_gpus = max(extra_gpus, _spare(gpus - len(free_gpus), self.held_gpus().values()))
            cores, gpus = max(0, len(free_cores) - extra_cores), max(0, len(free_gpus) - extra_gpus)
        self._kept_cores += free_cores[:cores]
        self._kept_gpus += free_gpus[:gpus]

    def _free_for(self, lasts_s: float | None) -> tuple[list[int], list[str]]:
        """The devices for one that lasts so long: first those that are kept, where it gives them back in time."""
        cores, gpus = _free(self.cores, self._kept_cores), _free(self.gpus, self._kept_gpus)
        if lasts_s is None or lasts_s > self._until:
            return cores, gpus
        return [*self._kept_cores, *cores], [*self._kept_gpus, *gpus]

    def _expected_start(self, request: JobRequest) -> tuple[float, int, int]:
        """When it can start by the estimates, and how many cores and GPUs it leaves then; -inf where none tells.

        Those that passed it count only where it can start earlier for them: whoever passes next must not lose it that.
        """
        here, known = place_of(request), [lease for lease in self.leases if lease.left_s is not None]
        before = self._start_after(request, [one for one in known if one.place is None or one.place < here])
        if before[0] == -math.inf:
            return before
        after_all = self._start_after(request, known)
        return after_all[0], min(before[1], after_all[1]), min(before[2], after_all[2])

    def _start_after(self, request: JobRequest, ending: Sequence[Lease]) -> tuple[float, int, int]:
        """The same where of all that run these end, each at its estimate."""
        cores = len(self.cores) - cores_wanted(request, self.machine)
        gpus = len(self.gpus) - gpus_wanted(request, self.machine)
        held_cores, held_gpus = self.held_cores(), self.held_gpus()
        for lease in sorted(ending, key=lambda one: one.left_s or 0.0):
            cores, gpus = cores + held_cores[lease.id], gpus + held_gpus[lease.id]
            if cores >= 0 and gpus >= 0:
                assert lease.left_s is not None
                return lease.left_s, cores, gpus
        return -math.inf, 0, 0

    def held_cores(self) -> dict[str, int]:
        return {lease.id: len(set(lease.cores) & set(self.machine.cores)) for lease in self.leases}

    def held_gpus(self) -> dict[str, int]:
        return {lease.id: len(set(lease.gpus) & set(self.uuids)) for lease in self.leases}


def _spare(lacking: int, held: Iterable[int]) -> int:
    """Of the devices that are free, how many a job that lacks so many will not need, whichever holders end first.

    When it starts, the holders that have ended had at least the smallest of their sums that suffices.
    """
    sums = {0}
    for count in held:
        sums |= {count + other for other in sums}
    return min((sum for sum in sums if sum >= lacking), default=lacking) - lacking


def _behind(runs: int) -> str:
    return f"behind {runs} run{'s' if runs > 1 else ''}" if runs else ""


def _reason(request: JobRequest, place: _Place) -> str:
    """Which devices the first job of the queue lacks, who has them, and for how long."""
    wanted, free, total = gpus_wanted(request, place.machine), len(place.gpus), len(place.uuids)
    kind, held = "GPU", place.held_gpus()
    if wanted <= free:
        wanted, free, total = cores_wanted(request, place.machine), len(place.cores), len(place.machine.cores)
        kind, held = "core", place.held_cores()
    holders = [Holder(lease.name, held[lease.id], lease.left_s) for lease in place.leases if held[lease.id]]
    return lack_words(Lack(kind, wanted, free, total, place.machine.name, request.nodes, holders))


def _free(everything: Sequence[Item], taken: Sequence[Item]) -> list[Item]:
    held = set(taken)
    return [item for item in everything if item not in held]
