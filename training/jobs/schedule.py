"""Who starts next, with how many devices, and why the others wait; `leases.py` chooses them. Pure: no clock, files or
processes.

Jobs go by priority, then by age. A job of W workers with T threads holds min(W x T, all) cores of one node. On GPUs it
also holds as many as it has devices, or all, and, if so many are free, their share of the cores, near them. A job with
a `gpu_share` holds that share of one GPU's memory, and of its cores; other jobs with a `gpu_share` may have the rest,
but not while an earlier job waits for a GPU. A trial whose times are compared holds a whole node. A job on N nodes
holds as much on each, all at once or nothing, so two of them never wait for each other; so does a job that is spread
because no node has devices for all its workers. A job that nodes may join starts with as many as it needs, takes what
else is free then, and later what is not reserved for a waiting job. What the first job that cannot start yet needs is
reserved for it (backfilling: Lifka, "The ANL/IBM SP scheduling system", 1995). A later job may pass it

- with devices that the first will not need, in whatever order the jobs that run end;
- if durations are known: on devices that the first will not need at its estimated start, or on any device, if the
  later job is estimated to end before that start. A job is estimated to last as long as the longest of its config has.

Without estimates only the first rule applies. When the first job can start is estimated only from the jobs that went
before it: once they have ended, no job passes it by an estimate any more. So no job starves, even if estimates are
wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from scalebook.training.jobs.devices import Allocation, NodeDevices
from scalebook.training.jobs.gpu_checks import holds, placed, why_not
from scalebook.training.jobs.job_folder import JobRequest
from scalebook.training.jobs.leases import Lease, Lendable, place_of
from scalebook.training.jobs.wait_reasons import WAITS_FOR, no_data_words, too_few_words

STARTS = "starts now"


class Join(NamedTuple):
    """A node that is to join a running job, and what the job gets there."""

    job: str
    lent: Allocation


def grown(running: Sequence[Lease], places: Sequence[Lendable]) -> tuple[list[Join], dict[str, str]]:
    """Nodes for running jobs that may grow, in the order of the queue, from what is not reserved; and by job, in words,
    how many nodes it has.

    `places`: what is left after all waiting jobs have been planned.
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
        words[lease.id] = f"{len(has)} of {request.nodes} nodes"
        if len(has) < request.nodes:
            words[lease.id] += f"; {WAITS_FOR}more: {_what_for(request, others, [place for _, place in lacks], has)}"
    return joins, words


class Start(NamedTuple):
    """A job that can start at once: `cores` to pin it to, UUIDs of the `gpus` it may see, on a machine."""

    request: JobRequest
    cores: list[int]
    gpus: list[str]
    machine: str = ""
    lasts_s: float | None = None
    """Its estimated duration, s."""
    others: Sequence[Allocation] = ()
    """What it gets on the other nodes."""

    @property
    def lease(self) -> Lease:
        request, others = self.request, list(self.others)
        return Lease(
            request.id, request.title, self.cores, self.gpus, self.lasts_s, self.machine, place_of(request), others,
            share=request.gpu_share,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """`reasons` has an entry for every waiting job, also for those that start, and for each running job that nodes may
    join."""

    starts: list[Start]
    reasons: dict[str, str]
    joins: list[Join] = field(default_factory=list)


def _holds_all(request: JobRequest) -> bool:
    return request.trial is not None and request.trial.holds_all


def in_order(waiting: Sequence[JobRequest]) -> list[JobRequest]:
    return sorted(waiting, key=place_of)


def plan(
    waiting: Sequence[JobRequest],
    running: Sequence[Lease],
    machines: Sequence[NodeDevices],
    lasts: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """Plan devices for as many waiting jobs as can start now, and a reason in plain words for each of the others.

    `lasts`: estimated durations of waiting jobs, s, by id, where known.
    """
    places = [Lendable(machine, [part for lease in running if (part := lease.on(machine))]) for machine in machines]
    starts: list[Start] = []
    reasons: dict[str, str] = {}
    blocked = 0
    for original in in_order(waiting):
        request = placed(original, machines)
        fit = [place for place in places if request.accelerator != "gpu" or place.machine.gpus]
        if request is not original:
            fit = [place for place in fit if holds(place.machine, request)]
        with_data = [place for place in fit if not place.machine.lacks(request.stays)]
        if len(with_data) < min(len(fit), request.fewest):
            reasons[request.id] = no_data_words(request.stays, machines)
            continue
        fit = with_data
        if not fit:
            is_named = any(machine.name for machine in machines)
            reasons[request.id] = f"waits for a GPU, but {'no node has one' if is_named else 'this machine has none'}"
            continue
        if len(fit) < request.fewest:
            there = [place.machine for place in fit]
            reasons[request.id] = too_few_words(request.fewest, there, request.accelerator == "gpu")
            continue
        lasts_s = lasts.get(request.id)
        lacking = partial(Lendable.lacking, request=request, lasts_s=lasts_s)
        by_lack = sorted(fit, key=lacking)
        nearest = by_lack[: request.fewest]
        nearest += [place for place in by_lack[request.fewest : request.nodes] if lacking(place) == 0]
        beside = [place for place in places if place not in nearest] if _holds_all(request) else []
        worst = max(*nearest, *beside, key=lacking) if len(nearest) + len(beside) > 1 else nearest[0]
        if lacking(worst) == 0:
            first, *others = [place.lend(request, lasts_s) for place in nearest]
            others += [replace(place.lend(request, lasts_s), idle=True) for place in beside]
            starts.append(Start(original, first.cores, first.gpus, first.machine, lasts_s, others))
            reasons[request.id] = STARTS
        else:
            why = why_not(request, machines)
            reasons[request.id] = _behind(blocked) or f"{worst.why(request)}{f'; {why}' if why else ''}"
            for place in (*nearest, *beside):
                place.reserve(request)
            blocked += 1
    joins, words = grown(running, places)
    return Plan(starts, {**reasons, **words}, joins)


def _behind(runs: int) -> str:
    return f"behind {runs} run{'s' if runs > 1 else ''}" if runs else ""


def _fits(place: Lendable, request: JobRequest) -> bool:
    return not place.machine.lacks(request.stays) and (request.accelerator != "gpu" or bool(place.machine.gpus))


def _what_for(request: JobRequest, others: Sequence[Lendable], allowed: Sequence[Lendable], has: set[str]) -> str:
    rest = [place for place in allowed if place.machine.name not in has]
    if rest:
        why = rest[0].why(request)
        return (
            why.removeprefix(WAITS_FOR) if rest[0].lacks(request) else "the free devices are reserved for a waiting run"
        )
    ended = ", ".join(place.machine.name for place in others if place.machine.name not in has)
    return f"the run's part on {ended} has ended" if ended else "there is no other node"
