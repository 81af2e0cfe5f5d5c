"""Several machines of one run, each a process of this one with an environment of its own."""

import multiprocessing
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scalebook.training.lightning.processes.threads import end_pools

WAIT_S = 120.0
LAUNCHERS = ("NODE_RANK", "GROUP_RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


def free_port(address: str = "127.0.0.1") -> int:
    with socket.create_server((address, 0)) as taken:
        return int(taken.getsockname()[1])


def by_hand(nodes: int = 2, address: str = "127.0.0.1") -> list[dict[str, str]]:
    """The environments of so many machines that a person has started."""
    port = free_port()
    return [{"NODE_RANK": str(node), "MASTER_ADDR": address, "MASTER_PORT": str(port)} for node in range(nodes)]


def slurm(tasks: int) -> list[dict[str, str]]:
    """The environments that srun gives to so many tasks on each of two machines; they are numbered round robin."""
    port = str(free_port())
    return [
        {
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_NUM_TASKS": str(2 * tasks),
            "SLURM_STEP_NODELIST": "host[1-2]",
            "SLURM_NTASKS": str(2 * tasks),
            "SLURM_NTASKS_PER_NODE": str(tasks),
            "SLURM_NODEID": str(node),
            "SLURM_LOCALID": str(task),
            "SLURM_PROCID": str(2 * task + node),
            "SLURM_JOB_ID": "77",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        for node in range(2)
        for task in range(tasks)
    ]


def torchrun(port: int, address: str = "127.0.0.1") -> list[dict[str, str]]:
    """The environments of a process on each of two machines; torchrun's agent has the store at this address."""
    environment = {
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }  # fmt: skip
    return [{**environment, "GROUP_RANK": str(node), "RANK": str(node)} for node in range(2)]


class Machine:
    """A process that does `body` in this environment; `result` waits for what it returns, or raises what it raised."""

    def __init__(self, environment: Mapping[str, str], body: Callable[[], Any], answer: Path) -> None:
        self.answer = answer
        end_pools()
        self.process = multiprocessing.get_context("fork").Process(target=self._main, args=(environment, body))
        self.process.start()

    def _main(self, environment: Mapping[str, str], body: Callable[[], Any]) -> None:
        os.setsid()
        for name in [name for name in os.environ if name in LAUNCHERS or name.startswith("SLURM")]:
            del os.environ[name]
        os.environ.update(environment)
        try:
            told = body()
        except BaseException as error:  # noqa: BLE001  # it is raised in the test
            traceback.print_exc()
            told = error
        self.answer.write_bytes(pickle.dumps(told))

    def result(self) -> Any:
        self.process.join(WAIT_S)
        assert not self.process.is_alive(), "a machine hangs"
        assert self.answer.exists(), f"ended with {self.process.exitcode} and without a word"
        told = pickle.loads(self.answer.read_bytes())  # noqa: S301  # of our own fork
        if isinstance(told, BaseException):
            raise told
        return told

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def behind(seconds: float) -> None:
    """This process's clock is so far behind, for all of Scalebook that reads it, by whatever name."""
    now, now_ns = time.time, time.time_ns
    late = {now: lambda: now() - seconds, now_ns: lambda: now_ns() - int(seconds * 1e9)}
    ours = [module for name, module in sys.modules.items() if name.startswith("scalebook.")]
    for module in (time, *ours):
        for name, value in list(vars(module).items()):
            if value is now or value is now_ns:
                setattr(module, name, late[value])


def together(environments: list[dict[str, str]], body: Callable[[], Any], folder: Path) -> list[Any]:
    """What each of the machines returns; the first error is raised."""
    machines = [Machine(one, body, folder / f"machine-{node}") for node, one in enumerate(environments)]
    try:
        return [machine.result() for machine in machines]
    finally:
        for machine in machines:
            machine.end()


def outcomes(body: Callable[[], Any], folder: Path, nodes: int = 2) -> list[Any]:
    """What each of so many machines returns or raises; how long after the death the second has ended is noted."""

    def ends() -> Any:
        try:
            return body()
        finally:
            (folder / f"ended-{os.environ['NODE_RANK']}").touch()

    machines = [Machine(one, ends, folder / f"machine-{node}") for node, one in enumerate(by_hand(nodes))]
    found: list[Any] = []
    try:
        for machine in machines:
            try:
                found.append(machine.result())
            except BaseException as error:  # noqa: BLE001  # which is the question
                found.append(error)
    finally:
        for machine in machines:
            machine.end()
    return found
