"""Which of several nodes this process is on, by the environment of torchrun or Slurm, or by variables set by hand."""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from scalebook.training.base.errors import ConfigError

NODES: Final = "trainer.num_nodes"
DEVICES: Final = "trainer.devices"
HOW: Final = "Start the run on each node with torchrun or srun, or with NODE_RANK, MASTER_ADDR and MASTER_PORT set"
KEY_FILE: Final = "SCALEBOOK_KEY_FILE"
"""The variable that names the file with the nodes' key."""
SLURM_PORTS: Final = 15_000
"""The first of the ports for Slurm jobs, by job id, as in Lightning."""

LAUNCHERS: Final = re.compile(
    r"(NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_\w+|SLURM_(STEP_\w+|PROCID|NODEID|LOCALID|NTASKS))"
)
"""Variables that tell a process that it is one of several."""


@dataclass(frozen=True)
class NodeRank:
    """A process's place among those started for one run, and where they meet.

    One process was started on each node, which forks the workers there, or one for each worker.
    """

    nodes: int
    node: int
    tasks: int
    """Processes started on each node."""
    task: int
    """This process's number on its node."""
    address: str
    port: int
    hosted: bool = False
    """Whether torchrun's agent listens at the address."""
    by: str = "the environment"

    @property
    def index(self) -> int:
        """This process's number among all that were started."""
        return self.node * self.tasks + self.task

    @property
    def count(self) -> int:
        return self.nodes * self.tasks

    @property
    def where(self) -> str:
        return f"{self.address}:{self.port}"


def node_rank(environment: Mapping[str, str], nodes: int, devices: int | None) -> NodeRank | None:
    """This process's place in a run on `nodes` nodes; None for a process that was started alone.

    ConfigError if the environment has other numbers, or none. `devices`: workers on each node, None if not known.
    """
    try:
        rank = _torchrun(environment) or _slurm(environment)
        if rank is None and nodes > 1:
            rank = _by_hand(environment, nodes)
    except ConfigError:
        raise
    except (KeyError, ValueError) as error:
        raise ConfigError(NODES, f"cannot be compared with the environment: {error!r}", f"{HOW}.") from error
    if rank is None:
        if nodes > 1:
            raise ConfigError(NODES, f"is {nodes}, but the environment names no other node", f"{HOW}; or use 1.")
        return None
    if rank.nodes != nodes:
        raise ConfigError(NODES, f"is {nodes}, but {rank.by} started this run on {rank.nodes}", f"Use {rank.nodes}.")
    if not 0 <= rank.node < nodes:
        raise ConfigError(NODES, f"is {nodes}, but NODE_RANK is {rank.node}", f"Use 0 to {nodes - 1}.")
    if devices is not None and rank.tasks not in (1, devices):
        why = f"is {devices}, but {rank.by} started {rank.tasks} processes on each node"
        fix = f"Start only 1 process on each node, because Scalebook forks the workers, or use {rank.tasks}."
        raise ConfigError(DEVICES, why, fix)
    return rank if rank.count > 1 else None


def _torchrun(environment: Mapping[str, str]) -> NodeRank | None:
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    return NodeRank(
        nodes=int(environment["GROUP_WORLD_SIZE"]),
        node=int(environment["GROUP_RANK"]),
        tasks=int(environment["LOCAL_WORLD_SIZE"]),
        task=int(environment["LOCAL_RANK"]),
        address=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        by="torchrun",
    )


def _slurm(environment: Mapping[str, str]) -> NodeRank | None:
    """Of a step, which srun starts: a batch script has the job's variables and is one process all the same."""
    if "SLURM_STEP_NUM_TASKS" not in environment or "SLURM_PROCID" not in environment:
        return None
    nodes, tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if tasks % nodes:
        why = f"is {nodes}, but Slurm started {tasks} tasks, which is not the same number on each node"
        raise ConfigError(NODES, why, "Pass --ntasks-per-node=1 to srun.")
    job = environment.get("SLURM_JOB_ID", "0")
    return NodeRank(
        nodes=nodes,
        node=int(environment["SLURM_NODEID"]),
        tasks=tasks // nodes,
        task=int(environment["SLURM_LOCALID"]),
        address=environment.get("MASTER_ADDR") or first_host(environment["SLURM_STEP_NODELIST"]),
        port=int(environment.get("MASTER_PORT") or SLURM_PORTS + int(job[-4:])),
        by="Slurm",
    )


def _by_hand(environment: Mapping[str, str], nodes: int) -> NodeRank | None:
    """How many machines there are is what the config says."""
    node = environment.get("NODE_RANK") or environment.get("GROUP_RANK")
    if node is None or "MASTER_ADDR" not in environment or "MASTER_PORT" not in environment:
        return None
    return NodeRank(nodes, int(node), 1, 0, environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))


def forget_launchers(environment: MutableMapping[str, str]) -> None:
    """Remove the launchers' variables, for a job of the queue: it inherits those of whoever started the queue."""
    for name in [name for name in environment if LAUNCHERS.fullmatch(name)]:
        del environment[name]


def first_host(nodes: str) -> str:
    """The first host of a list in Slurm's form: `gpu07` of `gpu[07-09,12],login`."""
    first = re.split(r",(?![^\[]*\])", nodes)[0]
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first)
