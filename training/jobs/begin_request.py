"""How a job starts on another node: its process asks, and the node that has the job's folder says whether it may.

The folder is claimed there, by `process.json`, before a line of the job has run; so of several that try exactly one
runs it.

On several nodes each has a part of the job, with a folder and a process of its own; all parts start or none. The first
node's part is the job itself. Each other part has a folder in `.scalebook/parts`; its name says whose part it is, on
which nodes and in which attempt, so that parts of different attempts are never mixed. A part's process asks as a job's
does. If a part cannot start (its node is lost), that is written into its folder, and the whole attempt fails. Parts
that join a running job have their own names, in the run's `joined.json`.
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

from scalebook.training.base import ProcessId
from scalebook.training.base.files import records
from scalebook.training.jobs.devices import Allocation

ASKED: Final = "begun.json"
ANSWER: Final = "permit"
YES: Final = "yes"
PATIENCE_S: Final = 120.0
"""How long the process waits for the answer, s: a link may be down."""
EVERY_S: Final = 0.002
KEPT_S: Final = 1.0
"""Interval between checks that the agent lives, s."""
PARTS: Final = "parts"
"""The folder of parts, within the hidden folder."""
OF: Final = "@"
"""Separates the job's id from the part's own name; no job id contains it."""
JOINED: Final = "joined.json"


@dataclass(frozen=True)
class RayHandle:
    """A job as a process on a node of a cluster, started by the agent there."""

    process: ProcessId
    """On that node."""
    machine: str
    agent: str
    """Which start of the agent: news from another start is ignored."""
    folder: str
    """The job's folder, on the node of its workspace."""
    executor: Literal["ray"] = "ray"
    parts: list[str] = field(default_factory=list)
    """For a job on several nodes: the parts on the other nodes (`part_names`)."""


@dataclass(frozen=True)
class RemoteJobContext:
    """What a job's process needs to start on another node."""

    machine: str
    agent: str
    home: str
    """The job's folder, on the node of its workspace."""
    asks: str
    """A folder on this node for the question and the answer."""
    keeper: ProcessId
    """The agent's process; without it the job can report nothing."""
    parts: list[str] = field(default_factory=list)
    others: list[Allocation] = field(default_factory=list)
    """What the job holds on the other nodes."""
    environment: dict[str, str] = field(default_factory=dict)
    """Where the nodes of the run meet."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "RemoteJobContext":
        """Build it from the dict that `asdict` made."""
        parsed = {"others": [Allocation(**lent) for lent in raw["others"]], "keeper": ProcessId(**raw["keeper"])}
        return cls(**{**raw, **parsed})

    def handle(self, process: ProcessId) -> RayHandle:
        return RayHandle(process, self.machine, self.agent, self.home, parts=self.parts)


def await_permission(asks: Path, started: Any) -> bool:
    """Ask, in the job's process, and wait for the answer. False also when none comes."""
    records.save(asks / ASKED, started)
    answer, deadline = asks / ANSWER, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer.exists():
            return answer.read_text(encoding="ascii") == YES
        time.sleep(EVERY_S)
    return False


def end_with(keeper: ProcessId) -> None:
    """Kill the job's process group when the agent is gone; called in the job's process, which leads the group.

    Ray ends an agent whose node it gives up, but not what the agent has started. The job then counts as lost, and may
    run again on another node.
    """

    def watch() -> None:
        while keeper.alive():
            time.sleep(KEPT_S)
        print("scalebook: the agent on this node has died, so this run can no longer report and is stopped", flush=True)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="keeper", daemon=True).start()


@dataclass(frozen=True)
class RunPart:
    """A job's part on a node other than the first. `node`: its number; `ordered`: unix time, s."""

    name: str
    node: int
    lent: Allocation
    ordered: float


@dataclass(frozen=True)
class JoinedParts:
    """`joined.json` in a job's folder: the parts that joined while it ran, in this order."""

    parts: list[RunPart] = field(default_factory=list)


def part_names(job: str, machines: Sequence[str], attempt: int = 0) -> list[str]:
    """The parts' names, for all nodes but the first, which has the job itself. `attempt`: with these nodes, from 0."""
    word = hashlib.sha256("\n".join([*machines, *([str(attempt)] if attempt else [])]).encode()).hexdigest()[:8]
    return [f"{job}{OF}{word}-{node}" for node in range(1, len(machines))]


def joined_name(job: str, before: int, node: int) -> str:
    """The name of a part that joins after `before` others."""
    return f"{job}{OF}joined{before}-{node}"


def read_joined_parts(run: Path) -> list[RunPart]:
    """The parts that have read_joined_parts the run in this folder."""
    record = records.peek(run / JOINED, JoinedParts)
    return record.parts if record else []


def run_of(name: str) -> str:
    """The id of the job that a job's or a part's name belongs to."""
    return name.partition(OF)[0]


def is_part(name: str) -> bool:
    return OF in name


def folder_of(hidden: Path, name: str) -> Path:
    """The folder of a job or a part, on the node of its workspace."""
    return hidden / (PARTS if is_part(name) else "jobs") / name
