"""How a job begins on other machines: its process asks, and the machine that has the folder says whether it may.

So of several that try exactly one runs it, as here: the folder is claimed there, by `process.json`, before a line of
the job has run.

On several machines each has a part of it, with a folder and a process of its own, and all begin or none. The first
machine's part is the job. Each other one has a folder in `.scalebook/parts`, by a name that says whose part it is and
how the machines were chosen, so that one of an earlier attempt is never taken for one of this. A part's process asks as
a job's does. One that comes to nothing (its machine is lost) is told so in its folder, and with it all of this attempt
come to nothing. Parts that join in mid-run have names of their own, in the run's `joined.json`.
"""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from scalebook.training.base.files import records
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.process import ProcessId, alive

ASKED: Final = "begun.json"
ANSWER: Final = "permit"
YES: Final = "yes"
PATIENCE_S: Final = 120.0
"""So long it waits for the answer: a link may be down."""
EVERY_S: Final = 0.002
KEPT_S: Final = 1.0
"""Between two looks whether the agent lives."""
PARTS: Final = "parts"
"""The folder of parts, within the hidden one."""
OF: Final = "@"
"""Between the job and what tells its parts apart; no id of a job has it."""
JOINED: Final = "joined.json"


@dataclass(frozen=True)
class RayHandle:
    """A job as a process of a machine of a cluster, started by an agent there."""

    process: ProcessId
    """On that machine."""
    machine: str
    agent: str
    """Which start of the agent: what another one says of its jobs does not count."""
    folder: str
    """The job's, on the machine of its workspace."""
    executor: Literal["ray"] = "ray"
    parts: list[str] = field(default_factory=list)
    """Of a job on several machines, what the others have (`part_names`)."""


@dataclass(frozen=True)
class RemoteJobContext:
    """What the process of a job must know to begin on another machine."""

    machine: str
    agent: str
    home: str
    """The job's folder, where its workspace is."""
    asks: str
    """A folder of this machine, for the question and the answer."""
    keeper: ProcessId
    """The agent's: without it nobody hears of the job any more."""
    parts: list[str] = field(default_factory=list)
    others: list[Allocation] = field(default_factory=list)
    """What the job holds of other machines."""
    environment: dict[str, str] = field(default_factory=dict)
    """Where the machines of one run meet."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "RemoteJobContext":
        """From what `asdict` makes of it."""
        parsed = {"others": [Allocation(**lent) for lent in raw["others"]], "keeper": ProcessId(**raw["keeper"])}
        return cls(**{**raw, **parsed})

    def handle(self, process: ProcessId) -> RayHandle:
        return RayHandle(process, self.machine, self.agent, self.home, parts=self.parts)


def permitted(asks: Path, started: Any) -> bool:
    """In the job's process: put the question, and wait for the answer. False also where none comes."""
    records.save(asks / ASKED, started)
    answer, deadline = asks / ANSWER, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer.exists():
            return answer.read_text(encoding="ascii") == YES
        time.sleep(EVERY_S)
    return False


def end_with(keeper: ProcessId) -> None:
    """In the job's process, which leads its group: once the agent is gone all of it is killed.

    Ray ends an agent whose machine it gives up, but not what the agent has started. The job counts as lost then, and
    may be run again elsewhere.
    """

    def watch() -> None:
        while alive(keeper):
            time.sleep(KEPT_S)
        print("scalebook: the agent of this machine is gone, so nobody hears of this run any more", flush=True)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="keeper", daemon=True).start()


@dataclass(frozen=True)
class RunPart:
    """Of a job, on another machine than the first. `node`: its number; `ordered`: unix time, s."""

    name: str
    node: int
    lent: Allocation
    ordered: float


@dataclass(frozen=True)
class JoinedParts:
    """`joined.json` in a job's folder: the parts that it was given while it ran, in this order."""

    parts: list[RunPart] = field(default_factory=list)


def part_names(job: str, machines: Sequence[str], attempt: int = 0) -> list[str]:
    """Of all machines but the first, which has the job itself. `attempt`: with these machines, from 0."""
    word = hashlib.sha256("\n".join([*machines, *([str(attempt)] if attempt else [])]).encode()).hexdigest()[:8]
    return [f"{job}{OF}{word}-{node}" for node in range(1, len(machines))]


def joined_name(job: str, before: int, node: int) -> str:
    """Of a part that joins, after so many others."""
    return f"{job}{OF}joined{before}-{node}"


def joined(run: Path) -> list[RunPart]:
    """By the run's folder."""
    record = records.peek(run / JOINED, JoinedParts)
    return record.parts if record else []


def run_of(name: str) -> str:
    """The job that a part, or a job, is of."""
    return name.partition(OF)[0]


def is_part(name: str) -> bool:
    return OF in name


def folder_of(hidden: Path, name: str) -> Path:
    """Of a job or a part, on the machine of its workspace."""
    return hidden / (PARTS if is_part(name) else "jobs") / name
