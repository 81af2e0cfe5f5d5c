"""The other machines of a job: which take part in it or did, what it holds of them, what they have written."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.jobs.begin_request import RayHandle, RunPart, folder_of, joined
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.executor import PartEnd
from scalebook.training.jobs.job_folder import JobFolder, JobStart

BACK_S: Final = 2.0
"""After the first end of a part, before its machine may have another; s."""
LONGEST_BACK_S: Final = 300.0
FAULTS: Final = 3


def parts_of(job: JobFolder, started: JobStart | None) -> list[RunPart]:
    """Also those that have ended: first those with which it began, then as they joined."""
    if started is None or not isinstance(started.handle, RayHandle) or len(started.others) + job.request().nodes == 1:
        return []
    others = [lent for lent in started.others if not lent.idle]
    # not strict: the record may be a stranger's, and a page shows it all the same
    begun = enumerate(zip(started.handle.parts, others, strict=False), 1)
    return [*(RunPart(name, node, lent, started.started) for node, (name, lent) in begun), *joined(job.path)]


def lent_to(job: JobFolder, started: JobStart) -> list[Allocation]:
    """What it holds now, of the first machine first. Machines whose part has ended have theirs back."""
    first, *others = started.lent
    if not (parts := parts_of(job, started)):
        return [first, *others]
    ends = started.executor.ended_parts(started.handle)
    current = [part.lent for part in parts if (end := ends.get(part.name)) is None or not end.cleared]
    return [first, *current, *(lent for lent in others if lent.idle)]


def barred(job: JobFolder, started: JobStart) -> frozenset[str]:
    """Machines that may not take part just now, since parts there have ended."""
    return barred_machines(parts_of(job, started), started.executor.ended_parts(started.handle), time.time())


def barred_machines(parts: Sequence[RunPart], ends: Mapping[str, PartEnd], now: float) -> frozenset[str]:
    """Machines that get no other part of a job just now: after each that has ended they wait twice as long, and those
    where it has failed by itself FAULTS times get none."""
    barred = set()
    for machine in {part.lent.machine for part in parts}:
        ended = [end for part in parts if part.lent.machine == machine and (end := ends.get(part.name)) is not None]
        if not ended:
            continue
        wait_s = min(BACK_S * 2 ** (len(ended) - 1), LONGEST_BACK_S)
        if sum(end.failed for end in ended) >= FAULTS or now < max(end.when for end in ended) + wait_s:
            barred.add(machine)
    return frozenset(barred)


def is_short(job: JobFolder, started: JobStart) -> bool:
    """Whether fewer machines take part than it needs."""
    there = 1 + len(parts_of(job, started)) - len(started.executor.ended_parts(started.handle))
    return there < job.request().fewest


def part_folders(job: JobFolder) -> dict[str, JobFolder]:
    """What the others have written (their logs), by machine; a later part of the same one is that of `b (2)`."""
    folders: dict[str, JobFolder] = {}
    times: Counter[str] = Counter()
    for part in parts_of(job, job.started()):
        if "/" in part.name:  # a stranger's
            continue
        machine = part.lent.machine
        times[machine] += 1
        again = f" ({times[machine]})" if times[machine] > 1 else ""
        folders[f"{machine}{again}"] = JobFolder(folder_of(job.path.parents[1], part.name))
    return folders
