"""A job on several machines: each has a part of it, with a folder and a process of its own, and all begin or none.

The first machine's part is the job. Each other one has a folder in `.scalebook/parts`, by a name that says whose part
it is and how the machines were chosen, so that one of an earlier attempt is never taken for one of this. A part's
process asks before it begins, as a job's does; the first is permitted when all others have asked, and these when the
first has begun. One that comes to nothing (its machine is lost) is told so in its folder, and with it all of this
attempt come to nothing. Parts that join in mid-run have names of their own, in the run's `joined.json`. Port and key of
the run are made by the agent of the first machine, for as long as it knows the job.
"""

import hashlib
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scalebook.training.files import records
from scalebook.training.jobs.devices import Lent
from scalebook.training.jobs.executors.cluster.token import put_token
from scalebook.training.jobs.executors.executor import PartEnd
from scalebook.training.nodes import KEY_FILE

FOLDER: Final = "parts"
"""Within the hidden one."""
OF: Final = "@"
"""Between the job and what tells its parts apart; no id of a job has it."""
KEY_BYTES: Final = 32
JOINED: Final = "joined.json"
BACK_S: Final = 2.0
"""After the first end of a part, before its machine may have another; s."""
LONGEST_BACK_S: Final = 300.0
FAULTS: Final = 3


@dataclass(frozen=True)
class RunPart:
    """Of a job, on another machine than the first. `node`: its number; `ordered`: unix time, s."""

    name: str
    node: int
    lent: Lent
    ordered: float


@dataclass(frozen=True)
class JoinedParts:
    """`joined.json` in a job's folder: the parts that it was given while it ran, in this order."""

    parts: list[RunPart] = field(default_factory=list)


def barred_machines(parts: Sequence[RunPart], ends: Mapping[str, PartEnd], now: float) -> frozenset[str]:
    """Machines that get no other part of a job just now: after each that has ended they wait twice as long, and those
    where it has failed by itself FAULTS times get none."""
    found = set()
    for machine in {part.lent.machine for part in parts}:
        ended = [end for part in parts if part.lent.machine == machine and (end := ends.get(part.name)) is not None]
        if not ended:
            continue
        wait_s = min(BACK_S * 2 ** (len(ended) - 1), LONGEST_BACK_S)
        if sum(end.failed for end in ended) >= FAULTS or now < max(end.when for end in ended) + wait_s:
            found.add(machine)
    return frozenset(found)


def part_names(job: str, machines: Sequence[str], attempt: int = 0) -> list[str]:
    """Of all machines but the first, which has the job itself. `attempt`: with these machines, from 0."""
    word = hashlib.sha256("\n".join([*machines, *([str(attempt)] if attempt else [])]).encode()).hexdigest()[:8]
    return [f"{job}{OF}{word}-{node}" for node in range(1, len(machines))]


def joined_name(job: str, before: int, node: int) -> str:
    """Of a part that joins, after so many others."""
    return f"{job}{OF}joined{before}-{node}"


def joined(run: Path) -> list[RunPart]:
    """By the run's folder."""
    found = records.peek(run / JOINED, JoinedParts)
    return found.parts if found else []


def run_of(name: str) -> str:
    """The job that a part, or a job, is of."""
    return name.partition(OF)[0]


def is_part(name: str) -> bool:
    return OF in name


def folder_of(hidden: Path, name: str) -> Path:
    """Of a job or a part, on the machine of its workspace."""
    return hidden / (FOLDER if is_part(name) else "jobs") / name


@dataclass(frozen=True)
class Rendezvous:
    """Where the machines of one run meet, and the word by which they know each other."""

    address: str
    port: int
    key: str = field(repr=False)

    def environment(self, node: int, key_file: Path) -> dict[str, str]:
        """For the process of machine `node`; makes the file, which its owner alone can read."""
        put_token(key_file, self.key)
        return {
            "NODE_RANK": str(node), "MASTER_ADDR": self.address, "MASTER_PORT": str(self.port), KEY_FILE: str(key_file)
        }  # fmt: skip


class Rendezvouses:
    """On the first machine of runs: their ports, which nobody else is given meanwhile, and their keys."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Rendezvous, socket.socket]] = {}
        self._lock = threading.Lock()

    def of(self, run: str, address: str) -> Rendezvous:
        """The same for whoever asks about this run. `address`: of this machine, for the others."""
        with self._lock:
            if run not in self._kept:
                bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # this one never listens: the run does
                bound.bind((address, 0))
                made = Rendezvous(address, bound.getsockname()[1], secrets.token_hex(KEY_BYTES))
                self._kept[run] = made, bound
            return self._kept[run][0]

    def leave(self, run: str) -> None:
        with self._lock:
            _, bound = self._kept.pop(run, (None, None))
        if bound is not None:
            bound.close()


class Gathering:
    """In the courier: which parts have asked to begin. `meet`: where the machines of a run meet, by the run and its
    first machine; None while that does not answer."""

    def __init__(self, meet: Callable[[str, str], Rendezvous | None]) -> None:
        self.meet, self.asked = meet, set[str]()
