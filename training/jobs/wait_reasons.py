"""Why a job waits, in words: which devices it lacks, who has them, and for how long."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from scalebook.training.base import roughly
from scalebook.training.jobs.devices import NodeDevices

WAITS_FOR: Final = "waits for "


class Holder(NamedTuple):
    """A run that holds `has` of the devices. `left_s`: its estimated remaining time, s."""

    name: str
    has: int
    left_s: float | None


class Lack(NamedTuple):
    """What is lacking on the node that lacks most. `wanted`: on each of `nodes` nodes."""

    kind: str
    wanted: int
    free: int
    total: int
    machine: str
    nodes: int
    holders: Sequence[Holder]


def lack_words(lack: Lack) -> str:
    """`waits for 2 cores; 1 of 2 free on b, run A has the other, about 40 s left`; on this machine without `on b`. Of
    several runs `runs A (1) and B (1) have both`."""
    free, total, holders = lack.free, lack.total, lack.holders
    on = f" on {lack.machine}" if lack.machine else ""
    each = f" on each of {lack.nodes} nodes" if lack.nodes > 1 else ""
    parts = [f"{WAITS_FOR}{lack.wanted} {lack.kind}{'s' if lack.wanted > 1 else ''}{each}; {free} of {total} free{on}"]
    if len(holders) == 1:
        parts.append(f"run {holders[0].name} has {_share(holders[0].has, total)}")
    elif holders:
        listed = [f"{holder.name} ({holder.has})" for holder in holders[:3]]
        listed += [f"{len(holders) - 3} more"] if len(holders) > 3 else []
        runs = f"{', '.join(listed[:-1])} and {listed[-1]}"
        parts.append(f"runs {runs} have {'the others' if free else _share(total, total)}")
    if (left_s := _until_free(lack)) is not None:
        parts.append(f"about {roughly(left_s)} left")
    return ", ".join(parts)


def too_few_words(nodes: int, machines: Sequence[NodeDevices], gpus: bool) -> str:
    """`waits for 3 nodes at once, but there are only 2: a, b`."""
    named = ", ".join(machine.name for machine in machines if machine.name)
    there = f"there {'is' if len(machines) == 1 else 'are'} only {len(machines)}{f': {named}' if named else ''}"
    return f"waits for {nodes} nodes{' with a GPU' if gpus else ''} at once, but {there}"


def no_data_words(stays: Mapping[str, str], machines: Sequence[NodeDevices]) -> str:
    """`waits for a node with /w/data (data.init_args.root), missing on a, b; copy the files to the same path on
    a node`."""
    named = ", ".join(f"{path} ({key})" for key, path in stays.items())
    lacking = ", ".join(machine.name for machine in machines if machine.lacks(stays))
    return f"waits for a node with {named}, missing on {lacking}; copy the files to the same path on a node"


def _share(held: int, total: int) -> str:
    """How one holder's share of the devices is called, where nobody else holds any."""
    if held == total:
        return {1: "it", 2: "both"}.get(total, "all")
    return "the other" if held == 1 else "the others"


def _until_free(lack: Lack) -> float | None:
    """Seconds until enough devices are free, if the estimates hold; None where one that matters has none."""
    lacking = lack.wanted - lack.free
    estimated = [(holder.left_s, holder.has) for holder in lack.holders if holder.left_s is not None]
    for left_s, has in sorted(estimated, key=lambda one: one[0]):
        lacking -= has
        if lacking <= 0:
            return left_s
    return None
