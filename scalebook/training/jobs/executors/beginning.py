"""How a job begins on another machine: its process asks, and the machine that has the folder says whether it may.

So of several that try exactly one runs it, as here: the folder is claimed there, by `process.json`, before a line of
the job has run.
"""

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from scalebook.training.files import records
from scalebook.training.jobs.devices import Lent
from scalebook.training.jobs.process import ProcessId, alive

ASKED: Final = "begun.json"
ANSWER: Final = "permit"
YES: Final = "yes"
PATIENCE_S: Final = 120.0
"""So long it waits for the answer: a link may be down."""
EVERY_S: Final = 0.002
KEPT_S: Final = 1.0
"""Between two looks whether the agent lives."""


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
    """Of a job on several machines, what the others have (`cluster.parts`)."""


@dataclass(frozen=True)
class Away:
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
    others: list[Lent] = field(default_factory=list)
    """What the job holds of other machines."""
    environment: dict[str, str] = field(default_factory=dict)
    """Where the machines of one run meet."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Away":
        """From what `asdict` makes of it."""
        told = {"others": [Lent(**one) for one in raw["others"]], "keeper": ProcessId(**raw["keeper"])}
        return cls(**{**raw, **told})

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
