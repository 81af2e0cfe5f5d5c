"""What jobs hold on machines, for how long, and what else a machine can lend. Pure: no clock, no processes."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from scalebook.training.base import ConfigError
from scalebook.training.jobs.devices import Allocation, NodeDevices
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart
from scalebook.training.jobs.job_nodes import barred, lent_to
from scalebook.training.jobs.wait_reasons import WAITS_FOR, Holder, Lack, lack_words

Item = TypeVar("Item", int, str)
ROUNDING: Final = 1e-6
"""Tolerance in sums of shares: three thirds are one."""


@dataclass(frozen=True)
class Lease:
    """The devices held by a job that runs or is about to. `left_s` is its estimated remaining time, s."""

    id: str
    name: str
    cores: list[int]
    gpus: list[str] = field(default_factory=list)
    left_s: float | None = None
    machine: str = ""
    place: tuple[float, float, str] | None = None
    """`place_of` its request; None for a job that did not wait in the queue."""
    others: list[Allocation] = field(default_factory=list)
    """What it holds on nodes other than `machine`."""
    grows: JobRequest | None = None
    """The request of a job that more nodes may join; else None."""
    barred: Collection[str] = ()
    """Nodes that it does not get at present."""
    share: float = 1.0
    """Its share of the memory of its GPUs."""

    def on(self, machine: NodeDevices) -> "Lease | None":
        """The part of the lease on this machine; None if there is none."""
        for lent in (Allocation(self.machine, self.cores, self.gpus), *self.others):
            if lent.machine == machine.name:
                return replace(self, cores=lent.cores, gpus=lent.gpus, machine=lent.machine, others=[])
        return None

    @classmethod
    def of(cls, job: JobFolder, started: JobStart, left_s: float | None = None) -> "Lease":
        """The lease of a running job."""
        place = None if started.inline else place_of(job.queued())
        request, (first, *others) = job.request(), lent_to(job, started)
        grows = request if request.grows and not job.is_ending() else None
        return cls(
            job.id, request.title, first.cores, first.gpus, left_s, first.machine, place, others, grows,
            barred(job, started) if grows else (), request.gpu_share,
        )  # fmt: skip


def cores_wanted(request: JobRequest, machine: NodeDevices) -> int:
    """How many cores the job waits for on this machine."""
    if _alone(request):
        return len(machine.cores)
    return min(max(1, request.workers * request.threads), len(machine.cores))


def cores_lent(request: JobRequest, machine: NodeDevices) -> int:
    """How many cores the job gets if so many are free: on GPUs at least the share of all cores that goes with them."""
    gpus = gpus_wanted(request, machine)
    share = int(len(machine.cores) * gpus * request.gpu_share / len(machine.gpus)) if gpus else 0
    return max(cores_wanted(request, machine), share)


def gpus_wanted(request: JobRequest, machine: NodeDevices) -> int:
    if _alone(request):
        return len(machine.gpus)
    return min(request.gpus, machine.together)


def _alone(request: JobRequest) -> bool:
    return request.trial is not None and request.trial.exclusive


def running_leases(jobs: Iterable[JobFolder]) -> list[Lease]:
    """The leases of those jobs that run."""
    return [Lease.of(job, started, time_left(job)) for job in jobs
            if job.state() in ("running", "stopping") and (started := job.started()) is not None]  # fmt: skip


def lent_at_once(request: JobRequest, machine: NodeDevices, running: list[Lease]) -> Allocation:
    """The devices of a run that does not wait in the queue: the first cores, though others may use them, and free GPUs.
    ConfigError if too few are free."""
    free = Lendable(machine, running).lend(request, None).gpus
    if len(free) < gpus_wanted(request, machine):
        raise ConfigError(
            "trainer.accelerator",
            f"asks for {Lendable(machine, running).why(request).removeprefix(WAITS_FOR)}",
            "Wait until enough GPUs are free; or start this run from a notebook, so that it waits in the queue; or "
            "use cpu. Small runs can share a GPU if each of them sets gpu_share, such as gpu_share: 0.25.",
        )
    return Allocation(machine.name, machine.cores[: request.workers * request.threads], free)


def place_of(request: JobRequest) -> tuple[float, float, str]:
    """The job's place in the queue, as a sort key: higher priority first, then the older job; the id breaks ties."""
    return -request.priority, request.created, request.id


class Lendable:
    """What a machine can still lend while a plan is made."""

    def __init__(self, machine: NodeDevices, running: list[Lease]) -> None:
        self.machine, self.leases = machine, running
        self.uuids = [gpu.uuid for gpu in machine.gpus]
        self.cores = _free(machine.cores, [core for lease in running for core in lease.cores])
        self.gpus = _free(self.uuids, [gpu for lease in running for gpu in lease.gpus])
        """GPUs of which nobody has a share."""
        self._kept_cores: list[int] = []
        self._kept_gpus: list[str] = []
        """Of these the ones that are kept for who waits."""
        self._until = math.inf
        """When the first that waits can start, s from now; -inf where that is not known."""
        self._shares = True
        """Whether a job may join others on a GPU: none that waits for one would have it later for that."""

    def lacking(self, request: JobRequest, lasts_s: float | None) -> int:
        """How many devices must become free before the job can start."""
        free_cores, free_gpus = self._free_for(request, lasts_s)
        cores = cores_wanted(request, self.machine) - len(free_cores)
        return max(0, cores) + max(0, self._gpus_wanted(request) - len(free_gpus))

    def lacks(self, request: JobRequest) -> bool:
        """Whether too few devices are free here, not counting reservations."""
        cores, gpus = cores_wanted(request, self.machine), self._gpus_wanted(request)
        return len(self.cores) < cores or len(self._fit(request, self.gpus)) < gpus

    def lend(self, request: JobRequest, lasts_s: float | None) -> Allocation:
        free_cores, free_gpus = self._free_for(request, lasts_s)
        gpus = self._shared_with(request) or self._of_one_socket(free_gpus, self._gpus_wanted(request))
        near = {core for gpu in self.machine.gpus if gpu.uuid in gpus for core in gpu.cores}
        nearest = sorted(free_cores, key=lambda core: core not in near) if gpus else free_cores
        cores = sorted(nearest[: cores_lent(request, self.machine)])
        self.cores, self.gpus = _free(self.cores, cores), _free(self.gpus, gpus)
        self._kept_cores, self._kept_gpus = _free(self._kept_cores, cores), _free(self._kept_gpus, gpus)
        name, place, share = self.machine.name, place_of(request), request.gpu_share
        self.leases.append(Lease(request.id, request.title, cores, gpus, lasts_s, name, place, share=share))
        return Allocation(name, cores, gpus)

    def reserve(self, request: JobRequest) -> None:
        """Reserve for a job that cannot start what later jobs could delay it with; from the second such job on, all it
        needs."""
        cores, gpus = cores_wanted(request, self.machine), self._gpus_wanted(request)
        free_cores = _free(self.cores, self._kept_cores)
        free_gpus = self._fit(request, _free(self.gpus, self._kept_gpus))
        if self._until == math.inf:
            self._until, extra_cores, extra_gpus = self._expected_start(request)
            extra_cores = max(extra_cores, _spare(cores - len(free_cores), self.held_cores().values()))
            extra_gpus = max(extra_gpus, _spare(gpus - len(free_gpus), self.held_gpus().values()))
            cores, gpus = max(0, len(free_cores) - extra_cores), max(0, len(free_gpus) - extra_gpus)
        self._kept_cores += free_cores[:cores]
        self._kept_gpus += free_gpus[:gpus]
        self._shares = self._shares and request.accelerator != "gpu"

    def why(self, request: JobRequest) -> str:
        """Which devices the job lacks here, who has them, and for how long."""
        free, total = (len(self._fit(request, uuids)) for uuids in (self.gpus, self.uuids))
        wanted = self._gpus_wanted(request)
        kind, held = "GPU", self.held_gpus()
        if wanted <= free:
            wanted, free, total = cores_wanted(request, self.machine), len(self.cores), len(self.machine.cores)
            kind, held = "core", self.held_cores()
        holders = [Holder(lease.name, held[lease.id], lease.left_s) for lease in self.leases if held[lease.id]]
        return lack_words(Lack(kind, wanted, free, total, self.machine.name, request.fewest, holders))

    def _gpus_wanted(self, request: JobRequest) -> int:
        """That nobody has a part of."""
        return 0 if self._shared_with(request) else gpus_wanted(request, self.machine)

    def _shared_with(self, request: JobRequest) -> list[str]:
        """The GPU that the job can share with running jobs that also have a `gpu_share`; empty if there is none."""
        if request.gpu_share == 1 or gpus_wanted(request, self.machine) != 1 or not self._shares:
            return []
        for uuid in self.uuids:
            shares = [lease.share for lease in self.leases if uuid in lease.gpus]
            if shares and sum(shares) + request.gpu_share <= 1 + ROUNDING:
                return [uuid]
        return []

    def _fit(self, request: JobRequest, uuids: list[str]) -> list[str]:
        """Without instances of GPUs that are cut where the job needs several: CUDA shows a process one."""
        if gpus_wanted(request, self.machine) < 2 or _alone(request):
            return uuids
        whole = {gpu.uuid for gpu in self.machine.gpus if gpu.is_whole}
        return [uuid for uuid in uuids if uuid in whole]

    def _of_one_socket(self, free: list[str], count: int) -> list[str]:
        """So many near the same cores, of those that have the fewest to spare; the first where none has as many."""
        near = {gpu.uuid: tuple(gpu.cores) for gpu in self.machine.gpus}
        sockets: dict[tuple[int, ...], list[str]] = {}
        for uuid in free:
            sockets.setdefault(near[uuid], []).append(uuid)
        return min((group for group in sockets.values() if len(group) >= count), key=len, default=free)[:count]

    def _free_for(self, request: JobRequest, lasts_s: float | None) -> tuple[list[int], list[str]]:
        """The devices for one that lasts so long: first those that are kept, where it gives them back in time."""
        cores, gpus = _free(self.cores, self._kept_cores), _free(self.gpus, self._kept_gpus)
        if lasts_s is None or lasts_s > self._until:
            return cores, self._fit(request, gpus)
        return [*self._kept_cores, *cores], self._fit(request, [*self._kept_gpus, *gpus])

    def _expected_start(self, request: JobRequest) -> tuple[float, int, int]:
        """When it can start by the estimates, and how many cores and GPUs it leaves then; -inf where none tells.

        Jobs that overtook it count only if their end lets it start earlier; a job that overtakes next must not take
        that gain away.
        """
        own_place, estimated = place_of(request), [lease for lease in self.leases if lease.left_s is not None]
        before = self._start_after(request, [one for one in estimated if one.place is None or one.place < own_place])
        if before[0] == -math.inf:
            return before
        after_all = self._start_after(request, estimated)
        return after_all[0], min(before[1], after_all[1]), min(before[2], after_all[2])

    def _start_after(self, request: JobRequest, ending: Sequence[Lease]) -> tuple[float, int, int]:
        """The same where of all that run these end, each at its estimate."""
        cores = len(self.cores) - cores_wanted(request, self.machine)
        gpus = len(self._fit(request, self.gpus)) - self._gpus_wanted(request)
        held_cores, held_gpus = self.held_cores(), self.held_gpus()
        for lease in sorted(ending, key=lambda one: one.left_s or 0.0):
            cores, gpus = cores + held_cores[lease.id], gpus + held_gpus[lease.id]
            if cores >= 0 and gpus >= 0:
                assert lease.left_s is not None
                return lease.left_s, cores, gpus
        return -math.inf, 0, 0

    def held_cores(self) -> Counter[str]:
        """By job."""
        return Counter({lease.id: len(set(lease.cores) & set(self.machine.cores)) for lease in self.leases})

    def held_gpus(self) -> Counter[str]:
        """By job. One that several share counts as his who, by estimate, has it longest."""
        last = sorted(self.leases, key=lambda one: math.inf if one.left_s is None else one.left_s)
        return Counter({uuid: lease.id for lease in last for uuid in lease.gpus if uuid in self.uuids}.values())


def _spare(lacking: int, held: Iterable[int]) -> int:
    """Of the devices that are free, how many a job that lacks so many will not need, whichever holders end first.

    When it starts, the holders that have ended had at least the smallest of their sums that suffices.
    """
    sums = {0}
    for count in held:
        sums |= {count + other for other in sums}
    return min((sum for sum in sums if sum >= lacking), default=lacking) - lacking


def _free(everything: Sequence[Item], taken: Sequence[Item]) -> list[Item]:
    held = set(taken)
    return [item for item in everything if item not in held]


def time_left(job: JobFolder) -> float | None:
    """The job's remaining time by its last report, s; None without one."""
    progress = job.progress()
    return None if progress is None else progress.left_s


class DurationEstimates:
    """Estimates durations: a job takes as long as the longest finished job with the same config and workers."""

    def __init__(self) -> None:
        self._longest: dict[tuple[str, int], float] = {}

    def add(self, job: JobFolder) -> None:
        """Take an ended job into account. Resumed jobs are ignored: they started in the middle."""
        request, result, started = job.request(), job.result(), job.started()
        if not request.config_hash or request.resumed_from or result is None or started is None:
            return
        if result.status == "finished" and result.ended >= started.started:
            key = request.config_hash, request.workers
            self._longest[key] = max(self._longest.get(key, 0.0), result.ended - started.started)

    def of(self, waiting: Sequence[JobRequest]) -> dict[str, float]:
        """Estimated seconds by id, for jobs of whose kind one has finished. For a resumed job it is an upper bound."""
        kinds = {request.id: (request.config_hash, request.workers) for request in waiting}
        return {name: self._longest[kind] for name, kind in kinds.items() if kind in self._longest}
