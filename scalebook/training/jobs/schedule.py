"""Who starts next, on which devices, and why the others wait. Pure: no clock, no files, no processes.

Jobs go by priority, then by age. A job of W workers with T threads holds min(W x T, all) cores, and on GPUs min(W, all)
of them besides; a trial whose times are compared holds everything. What a job that cannot start yet could use is kept
free for it, so a small job behind it passes only where it takes nothing that the big one waits for: nobody starves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from scalebook.training.durations import roughly
from scalebook.training.jobs.devices import Inventory
from scalebook.training.jobs.folder import JobRequest

STARTS = "starts now"
Item = TypeVar("Item", int, str)


@dataclass(frozen=True)
class Lease:
    """A running job and the devices it holds. `left_s` is the estimate of its remaining time, s."""

    id: str
    name: str
    cores: list[int]
    gpus: list[str] = field(default_factory=list)
    left_s: float | None = None


class Start(NamedTuple):
    """A job that can start at once: `cores` to pin it to, UUIDs of the `gpus` it may see."""

    request: JobRequest
    cores: list[int]
    gpus: list[str]


@dataclass(frozen=True)
class Plan:
    """`reasons` has one entry for every waiting job, also for those that start."""

    starts: list[Start]
    reasons: dict[str, str]


def cores_wanted(request: JobRequest, inventory: Inventory) -> int:
    if _alone(request):
        return len(inventory.cores)
    return min(max(1, request.workers * request.threads), len(inventory.cores))


def gpus_wanted(request: JobRequest, inventory: Inventory) -> int:
    if _alone(request):
        return len(inventory.gpus)
    return min(max(1, request.workers), len(inventory.gpus)) if request.accelerator == "gpu" else 0


def _alone(request: JobRequest) -> bool:
    return request.trial is not None and request.trial.exclusive


def in_order(waiting: Sequence[JobRequest]) -> list[JobRequest]:
    """Higher priority first, then the older one; the id decides between twins."""
    return sorted(waiting, key=lambda request: (-request.priority, request.created, request.id))


def plan(waiting: Sequence[JobRequest], running: Sequence[Lease], inventory: Inventory) -> Plan:
    """Devices for as many waiting jobs as can start now, and a reason in plain words for each of the others."""
    cores = _free(inventory.cores, [core for lease in running for core in lease.cores])
    gpus = _free([gpu.uuid for gpu in inventory.gpus], [gpu for lease in running for gpu in lease.gpus])
    starts: list[Start] = []
    reasons: dict[str, str] = {}
    blocked = 0
    for request in in_order(waiting):
        if request.accelerator == "gpu" and not inventory.gpus:
            reasons[request.id] = "waits for a GPU; this machine has none"
            continue
        wanted, wanted_gpus = cores_wanted(request, inventory), gpus_wanted(request, inventory)
        if wanted <= len(cores) and wanted_gpus <= len(gpus):
            starts.append(Start(request, cores[:wanted], gpus[:wanted_gpus]))
            reasons[request.id] = STARTS
        else:
            started = [Lease(one.request.id, one.request.title, one.cores, one.gpus) for one in starts]
            reasons[request.id] = _behind(blocked) or _lacking(request, [*running, *started], inventory)
            blocked += 1
        cores, gpus = cores[wanted:], gpus[wanted_gpus:]
    return Plan(starts, reasons)


def _behind(runs: int) -> str:
    return f"behind {runs} run{'s' if runs > 1 else ''}" if runs else ""


def _lacking(request: JobRequest, running: Sequence[Lease], inventory: Inventory) -> str:
    """Which devices the first job of the queue lacks, who has them, and for how long."""
    uuids = [gpu.uuid for gpu in inventory.gpus]
    free_gpus = len(_free(uuids, [gpu for lease in running for gpu in lease.gpus]))
    if (wanted := gpus_wanted(request, inventory)) > free_gpus:
        held = {lease.id: len(set(lease.gpus) & set(uuids)) for lease in running}
        return _sentence("GPU", wanted, free_gpus, len(uuids), running, held)
    free_cores = len(_free(inventory.cores, [core for lease in running for core in lease.cores]))
    held = {lease.id: len(set(lease.cores) & set(inventory.cores)) for lease in running}
    wanted = cores_wanted(request, inventory)
    return _sentence("core", wanted, free_cores, len(inventory.cores), running, held)


def _sentence(kind: str, wanted: int, free: int, total: int, running: Sequence[Lease], held: dict[str, int]) -> str:
    """E.g. `waits for 2 cores; 1 of 2 free, run A has the other, about 40 s left`."""
    holders = [lease for lease in running if held[lease.id]]
    parts = [f"waits for {wanted} {kind}{'s' if wanted > 1 else ''}; {free} of {total} free"]
    if len(holders) == 1:
        parts.append(f"run {holders[0].name} has {_share(held[holders[0].id], total)}")
    elif holders:
        shown = [f"{lease.name} ({held[lease.id]})" for lease in holders[:3]]
        more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
        parts.append(f"runs {', '.join(shown)}{more} have the {'others' if free else total}")
    if (left := _until_free(wanted - free, holders, held)) is not None:
        parts.append(f"about {roughly(left)} left")
    return ", ".join(parts)


def _share(held: int, total: int) -> str:
    """How one holder's share of the devices is called, where nobody else holds any."""
    if held == total:
        return {1: "it", 2: "both"}.get(total, "all")
    return "the other" if held == 1 else "the others"


def _until_free(lacking: int, holders: Sequence[Lease], held: dict[str, int]) -> float | None:
    """Seconds until `lacking` more devices are free, if the estimates hold; None where one that matters has none."""
    known = sorted((lease for lease in holders if lease.left_s is not None), key=lambda lease: lease.left_s or 0.0)
    for lease in known:
        lacking -= held[lease.id]
        if lacking <= 0:
            return lease.left_s
    return None


def _free(everything: Sequence[Item], taken: Sequence[Item]) -> list[Item]:
    held = set(taken)
    return [item for item in everything if item not in held]
