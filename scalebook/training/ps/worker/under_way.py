"""What virtual workers have under way at a moment between two gradients: kept, and gone on with, to the last bit.

A life is a generator, which nothing can keep. So kept is what it waited for (`Doing`, `Leg`, the agenda), and a new
life begins behind that (`VirtualWorkers.life_again`). All else that decides what comes is plain values and tensors: the
clock, the shared counters, the versions that workers hold, a round's gradients and those that travel. Parameters and
optimizer state of the newest version are a checkpoint's own; the versions are so large that little else counts, one
for each distinct one that is held: up to N with N asynchronous workers, one with synchronous ones. Where workers make
steps of their own, or decode what they pull, their parameters and their optimizers' state come on top; of sparse tables
the rows that were changed since the oldest of these versions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.applying.shard import Newest, Shard
from scalebook.training.ps.coordination.admission import Verdict
from scalebook.training.ps.memory.region import ARRIVALS, FINISHED, LOST, RESTING, SectionCounters, ShardCounters
from scalebook.training.ps.trace import reaches
from scalebook.training.ps.worker.client import Client
from scalebook.training.ps.worker.end import Pushed
from scalebook.training.ps.worker.journey import Journey, Leg
from scalebook.training.ps.worker.virtual import Doing, VirtualWorkers

_ROW: Final = {"arrivals": ARRIVALS, "finished": FINISHED, "lost": LOST, "resting": RESTING}
_OF_SECTION: Final = (
    "admission", "clocks", "begun", "admitted", "last_admitted", "writing", "order", "owner", "seq", "valid",
    "base", "buffer", "pulled", "steps", "since",
)  # fmt: skip
_OF_JOURNEY: Final = ("gradients", "valid", "usable", "started", "waited", "was_sent", "staleness")
_OF_SHARD: Final = ("newest", "held", "applied", "kept", "bases")
_FORM: Final = 7
"""Of what is kept; another one is computed anew."""
_STATE_BIT: Final = 1 << 16  # of `newest`: which of the two optimizer states


def can_be_kept(workers: VirtualWorkers) -> bool:
    """Whether training has begun, and nobody is in the middle of a gradient, or of what it pushes at its end."""
    alive = workers.scheduler.alive
    if len(workers.sections) > 1 or not workers.scheduler.is_between_gradients:
        return False
    return bool(alive) and all(workers.doing[worker] is not Doing.FINISHES for worker in alive)


def kept(workers: VirtualWorkers) -> dict[str, Any]:
    """All that is under way. Tensors lie in the run's memory where they are large: write them before anything else
    happens."""
    assert can_be_kept(workers), "nothing to keep"
    section, control = workers.sections[0], workers.run.control
    clients = {worker: workers.joined[worker].clients[0] for worker in workers.scheduler.alive}
    return {
        "key": key_of(workers),
        "clock": workers.clock.state(),
        "scheduler": workers.scheduler.state(),
        "doing": {worker: workers.doing[worker].name for worker in clients},
        "pushed": {worker: list(pushed) for worker, pushed in workers.pushed.items()},
        "clients": {worker: _client(client) for worker, client in clients.items()},
        "rows": {name: control.column(counter) for name, counter in _ROW.items()},
        "section": {name: getattr(section.counters, name).tolist() for name in _OF_SECTION},
        "shards": [_shard(section, number) for number in range(len(section.shards))],
        "residuals": [] if section.coded is None else [section.coded.kept(w) for w in range(control.workers)],
        "sum": _sum(section),
        "slots": {}
        if section.summed is not None
        else {slot: section.slots.content(slot) for slot in _gathered(section)},
    }


def is_of(workers: VirtualWorkers, state: Mapping[str, Any]) -> bool:
    """Whether `state` can be gone on with by these workers, who have joined: it is of the same model, rule and clock,
    and of the version that they have as their first."""
    if state["key"] != key_of(workers):
        return False
    for shard, saved in zip(workers.sections[0].shards, state["shards"], strict=True):
        version = Newest.of(saved["newest"][0])
        now = shard.newest()
        size = shard.plan.version.nbytes
        if now.version != version.version or not torch.equal(
            shard.flats[now.buffer][:size], saved["versions"][version.buffer][:size]
        ):
            return False
        if shard.tables is not None and not shard.tables.is_of(saved["tables"]):
            return False
    return True


def go_on(workers: VirtualWorkers, state: Mapping[str, Any]) -> None:
    """Be where `state` was, instead of `VirtualWorkers.begin`; it `is_of` them, and the optimizer's state is there."""
    section, control = workers.sections[0], workers.run.control
    workers.clock.load(state["clock"])
    for name, counter in _ROW.items():
        for worker, value in enumerate(state["rows"][name]):
            control.set_counter(worker, counter, value)
    for shard, saved in zip(section.shards, state["shards"], strict=True):
        _load_shard(shard, saved)
    first = section.counters.admission[1]
    for name in _OF_SECTION:
        _load(section.counters, name, state["section"][name])
    if workers.run.settings.trace is not None and not reaches(
        workers.run.settings.trace, workers.run.settings.most(control.workers), first
    ):  # the updates before are in another folder
        section.counters.admission[1] = first
        _load(section.counters, "admitted", [0] * control.workers)
    if section.summed is not None and state["sum"] is not None:
        section.summed.load(state["sum"])
    for slot, content in state["slots"].items():
        section.slots.fill(slot, content)
    if section.coded is not None:
        for worker, residuals in enumerate(state["residuals"]):
            section.coded.restore(worker, residuals)
    for worker, saved in state["clients"].items():
        workers.doing[worker] = Doing[state["doing"][worker]]
        _load_client(workers.joined[worker].clients[0], saved)
    workers.pushed = {worker: Pushed(*pushed) for worker, pushed in state["pushed"].items()}
    lives = {worker: workers.life_again(worker) for worker in state["clients"]}
    control.event.wake()  # what was seen before is out of date
    workers.scheduler.load(state["scheduler"], lives)


def key_of(workers: VirtualWorkers) -> str:
    """What must be the same: parameters and their layout, all settings but for where a trace goes and when it ends."""
    settings = replace(workers.run.settings, trace=None, max_updates=None)
    plan = workers.sections[0].plan
    layout = [(shard.parameters, shard.version, shard.notes, shard.slots) for shard in plan.shards]
    return repr((_FORM, workers.run.control.workers, settings, layout))


# --- one client, one shard ----------------------------------------------------------------------------------------


def _client(client: Client) -> dict[str, Any]:
    journey = client.journey
    travels = client.leg is Leg.UP
    return {
        "bases": [list(base) for base in client.bases],
        "pulled": client.pulled,
        "leg": client.leg.name,
        "own": client.own(),
        "journey": None
        if journey is None
        else {
            **{name: getattr(journey, name) for name in _OF_JOURNEY},
            "gradients": [None if g is None else g.clone() for g in journey.gradients] if travels else [],
            "verdict": journey.verdict.name,
        },
    }


def _load_client(client: Client, saved: Mapping[str, Any]) -> None:
    journey = None
    if (of := saved["journey"]) is not None:
        verdict, others = Verdict[of["verdict"]], {name: of[name] for name in _OF_JOURNEY}
        journey = Journey(groups=client.pushed_groups, verdict=verdict, **others)
    bases = [Newest(*base) for base in saved["bases"]]
    client.go_on_from(bases, saved["pulled"], Leg[saved["leg"]], journey, saved["own"])


def _shard(section: Section, number: int) -> dict[str, Any]:
    shard, counters = section.shards[number], section.counters
    needed = {shard.newest().buffer, *(buffer for buffer in counters.shards[number].held.tolist() if buffer >= 0)}
    if section.control.settings.norms or section.control.settings.damping.compensates:
        needed |= {counters.buffer[slot * len(section.shards) + number] for slot in _gathered(section)}
    return {
        **{name: getattr(counters.shards[number], name).tolist() for name in _OF_SHARD},
        "versions": {buffer: _bytes(shard.flats[buffer]) for buffer in sorted(needed)},
        "squares": [square.clone() for square in shard.squares()],
        "tables": None if shard.tables is None else shard.tables.kept(),
    }


def _load_shard(shard: Shard, saved: Mapping[str, Any]) -> None:
    for buffer, content in saved["versions"].items():
        shard.flats[buffer].copy_(content)
    state = shard.counters.newest[0] & _STATE_BIT  # where the checkpoint's optimizer state has been put
    for name in _OF_SHARD:
        _load(shard.counters, name, saved[name])
    shard.counters.newest[0] = shard.counters.newest[0] & ~_STATE_BIT | state
    for square, content in zip(shard.squares(), saved["squares"], strict=True):
        square.copy_(content)
    if shard.tables is not None:
        shard.tables.load(saved["tables"])


def _gathered(section: Section) -> list[int]:
    """The slots of the round that is being gathered."""
    if not section.admission.rule.gathers:
        return []
    return section.counters.order[: section.admission.round().gathered].tolist()


def _sum(section: Section) -> dict[str, Any] | None:
    """What the round that is being gathered has so far."""
    if section.summed is None or not _gathered(section):
        return None
    kept = section.summed.kept()
    return {**kept, "sum": _bytes(kept["sum"])}


def _load(counters: SectionCounters | ShardCounters, name: str, values: list[Any]) -> None:
    memory = getattr(counters, name)
    for at, value in enumerate(values):
        memory[at] = value


def _bytes(memory: Tensor) -> Tensor:
    """The same memory as a tensor that `torch.save` writes no more of."""
    return torch.frombuffer(memory.numpy().data, dtype=torch.uint8) if memory.numel() else memory.clone()
