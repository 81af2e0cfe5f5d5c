"""The other nodes of a job: which have taken part in it, what it holds on them, what they have written."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.jobs.begin_request import RayHandle, RunPart, folder_of, read_joined_parts
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.executor import PartEnd
from scalebook.training.jobs.job_folder import JobFolder, JobStart

BACK_S: Final = 2.0
"""Wait after the first end of a part until its node may have another, s."""
LONGEST_BACK_S: Final = 300.0
FAULTS: Final = 3


def parts_of(job: JobFolder, started: JobStart | None) -> list[RunPart]:
    """The job's parts, also ended ones: first those with which it started, then those that joined, in order."""
    if started is None or not isinstance(started.handle, RayHandle) or len(started.others) + job.request().nodes == 1:
        return []
    others = [lent for lent in started.others if not lent.idle]
    # not strict: the record may be a stranger's, and a page shows it all the same
    begun = enumerate(zip(started.handle.parts, others, strict=False), 1)
    return [*(RunPart(name, node, lent, started.started) for node, (name, lent) in begun), *read_joined_parts(job.path)]


def lent_to(job: JobFolder, started: JobStart) -> list[Allocation]:
    """What the job holds now, the first node's first; nothing on nodes whose part has ended."""
    first, *others = started.lent
    if not (parts := parts_of(job, started)):
        return [first, *others]
    ends = started.executor.ended_parts(started.handle)
    current = [part.lent for part in parts if (end := ends.get(part.name)) is None or not end.cleared]
    return [first, *current, *(lent for lent in others if lent.idle)]


def barred(job: JobFolder, started: JobStart) -> frozenset[str]:
    """Nodes that may not take part at present, because parts have ended there."""
    return barred_machines(parts_of(job, started), started.executor.ended_parts(started.handle), time.time())


def barred_machines(parts: Sequence[RunPart], ends: Mapping[str, PartEnd], now: float) -> frozenset[str]:
    """Nodes that get no new part of a job at present: each ended part doubles a node's wait, and after FAULTS failures
    of its own a node gets no more."""
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
    """Whether fewer nodes take part than the job needs."""
    there = 1 + len(parts_of(job, started)) - len(started.executor.ended_parts(started.handle))
    return there < job.request().fewest


def part_folders(job: JobFolder) -> dict[str, JobFolder]:
    """The folders of the other parts (with their logs), by node; a node's second part is listed as `b (2)`."""
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
