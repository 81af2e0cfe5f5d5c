"""Jobs that run and may have more machines: which they get now, and what they wait for. Pure, as the schedule."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from scalebook.training.jobs.devices import Lent
from scalebook.training.jobs.folder import JobRequest
from scalebook.training.jobs.leases import Lease, Lendable
from scalebook.training.jobs.reasons import WAITS_FOR


class Join(NamedTuple):
    """A machine that is to take part in a job that runs, and what the job gets of it."""

    job: str
    lent: Lent


def grown(running: Sequence[Lease], places: Sequence[Lendable]) -> tuple[list[Join], dict[str, str]]:
    """Of what is kept for nobody who waits, in the order of the queue; and how many machines each such job has.

    `places`: after all that wait have had their turn.
    """
    joins: list[Join] = []
    words: dict[str, str] = {}
    for lease in sorted(running, key=lambda one: one.place or ()):
        if lease.grows is None:
            continue
        request = replace(lease.grows, least=1)  # it wants one more
        has = {lease.machine, *(lent.machine for lent in lease.others)}
        others = [place for place in places if place.machine.name not in has and _fits(place, request)]
        allowed = [place for place in others if place.machine.name not in lease.barred]
        lacks = sorted(((place.lacking(request, None), place) for place in allowed), key=lambda one: one[0])
        free = [place for lacking, place in lacks if lacking == 0][: max(0, request.nodes - len(has))]
        for place in free:
            lent = place.lend(request, None)
            joins.append(Join(lease.id, lent))
            has.add(lent.machine)
        words[lease.id] = f"{len(has)} of {request.nodes} machines"
        if len(has) < request.nodes:
            words[lease.id] += f"; {WAITS_FOR}more: {_what_for(request, others, [place for _, place in lacks], has)}"
    return joins, words


def _fits(place: Lendable, request: JobRequest) -> bool:
    return not place.machine.lacks(request.stays) and (request.accelerator != "gpu" or bool(place.machine.gpus))


def _what_for(request: JobRequest, others: Sequence[Lendable], allowed: Sequence[Lendable], has: set[str]) -> str:
    left = [place for place in allowed if place.machine.name not in has]
    if left:
        why = left[0].why(request)
        return why.removeprefix(WAITS_FOR) if left[0].lacks(request) else "what is free is kept for a run that waits"
    gone = ", ".join(place.machine.name for place in others if place.machine.name not in has)
    return f"{gone} had a part in it that ended" if gone else "no other is there"
