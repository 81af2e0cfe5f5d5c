"""Ray's daemons on this machine, as a head or as a node that has joined one: started, found again, and ended together.

A head listens on loopback alone unless it gets a host. Then Ray binds its ports (GCS, raylet, and the object manager of
each node) to all addresses of the machine, whatever address it is given (Ray 2.60): the firewall decides who reaches
them, and the token whom they answer.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from scalebook.training.base import (
    OWNER_ONLY,
    ConfigError,
    ProcessId,
    Workspace,
    is_host_and_port,
    safe_path,
)
from scalebook.training.base.files import records
from scalebook.training.cluster.cluster_token import cluster_home, found_token, make_token, take_token
from scalebook.training.cluster.ray_core import ray_core, require_ray

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 6379
UP_S: Final = 90.0
DOWN_S: Final = 15.0
REFUSED: Final = "InvalidAuthToken"
"""Part of Ray's message for a wrong token."""
OBJECTS_BYTES: Final = 80_000_000
"""Ray's shared memory for objects; ours are all small."""
SHORT: Final = Path("/tmp")
"""Ray's folder must have a short path: its sockets' paths may have 107 characters."""


@dataclass(frozen=True)
class Node:
    """`node.json`: the daemons of this machine, under one process that lives as long as they do."""

    process: ProcessId
    address: str
    """The head's address, host:port."""
    host: str
    """This machine's own address, at which the others reach it."""
    name: str
    head: bool
    folder: str
    """Ray's folder with sockets and logs; removed at the end."""

    @property
    def loopback(self) -> bool:
        return self.host == LOOPBACK


def here() -> Node | None:
    """The daemons that run on this machine for this user; None if there are none."""
    node = records.peek(_record(), Node)
    return node if node is not None and node.process.alive() else None


def start_head(host: str = LOOPBACK, port: int = PORT, name: str = "", cores: int | None = None) -> Node:
    """Start a head, with this machine as its first node. `port` 0: any free port. ConfigError if one runs already."""
    _nobody_yet()
    make_token()
    words = ["--head", f"--port={port}", "--include-dashboard=false"]
    return _start(words, host, name, cores, head=True)


def join(
    address: str, host: str = "", name: str = "", cores: int | None = None,
    token: Path | None = None,
) -> Node:  # fmt: skip
    """Make this machine a node of the cluster whose head is at `address`. `host`: this machine's own address, at which
    the head reaches it; by default the one from which this machine reaches the head."""
    _nobody_yet()
    if not is_host_and_port(address):
        raise ConfigError(
            "--join",
            f"is {address!r}, which is not an address",
            "Use the address, in the form host:port, that `scalebook cluster status` shows on the head.",
        )
    if token is None:
        found_token()
    else:
        take_token(token)
    return _start([f"--address={address}"], host or _own_address(address), name, cores, head=False)


def stop() -> bool:
    """End everything of Ray that was started here, jobs on this machine included; False if nothing ran.

    Raises RuntimeError if something is left after the deadline.
    """
    node = records.peek(_record(), Node)
    family = set() if node is None else {process for process in _members(node.process) if process.alive()}
    if node is None or not family:
        _record().unlink(missing_ok=True)
        return False
    for process in [node.process] if node.process.alive() else family:  # without it nobody ends the others
        process.send(signal.SIGTERM)
    if not _gone(node.process, family, DOWN_S):
        for process in family:
            process.send(signal.SIGKILL)
        if not _gone(node.process, family, DOWN_S):
            pids = ", ".join(str(process.pid) for process in family if process.alive())
            raise RuntimeError(f"Ray processes did not end: {pids}")
    shutil.rmtree(node.folder, ignore_errors=True)
    _record().unlink(missing_ok=True)
    return True


def ray_environment(loopback: bool = False) -> dict[str, str]:
    """Environment variables for every process of ours that is part of Ray or connects to it. They do not contain the
    token."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(found_token()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # an actor that asks for no GPU sees them all: leases are ours
        "RAY_worker_niceness": "0",  # jobs would else run at Ray's 15, and wait for whatever else the machine does
        # Without it Ray takes another address of the machine in place of loopback, and listens on all of them
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0" if loopback else "1",
    }


def _start(words: list[str], host: str, name: str, cores: int | None, *, head: bool) -> Node:
    folder = Path(tempfile.mkdtemp(prefix="scalebook-ray-", dir=SHORT))
    words = safe_path.python("-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *words)
    words += [f"--node-ip-address={host}", f"--object-store-memory={OBJECTS_BYTES}", f"--temp-dir={folder}"]
    words += [f"--node-name={name or socket.gethostname()}"]
    words += [f"--num-cpus={cores}"] if cores is not None else []
    log = cluster_home() / "ray.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=safe_path.HOME, env=safe_path.environment(**ray_environment(host == LOOPBACK)),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    leader, address_file = ProcessId.of(process.pid), folder / "ray_current_cluster"
    deadline = time.monotonic() + UP_S
    while not (address_file.is_file() and (address := address_file.read_text(encoding="ascii").strip())):
        if process.poll() is not None or time.monotonic() > deadline:
            _abandon(leader, folder)
            process.wait(DOWN_S)
            if REFUSED in _end_of(log):
                raise ConfigError(
                    "--token",
                    "is not the head's token, so the head rejects it",
                    "Copy the head's token again, and set --token to the copy.",
                )
            raise RuntimeError(f"Ray did not start. The end of {log}:\n{_end_of(log)}")
        time.sleep(0.1)
    node = Node(leader, address, host, name or socket.gethostname(), head, str(folder))
    records.save(_record(), node)
    return node


def _abandon(leader: ProcessId, folder: Path) -> None:
    for process in _members(leader):
        process.send(signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _members(leader: ProcessId) -> list[ProcessId]:
    """The daemons, their workers, and what those have started."""
    return [leader, *leader.descendants(), *leader.session()]


def _gone(leader: ProcessId, family: set[ProcessId], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(process.alive() for process in family):
        for process in list(family):
            family.update(process.descendants())
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return not leader.session()


def _nobody_yet() -> None:
    require_ray("scalebook cluster")
    cluster_home().mkdir(mode=0o700, parents=True, exist_ok=True)
    if (node := here()) is not None:
        state = "is the head" if node.head else "has joined the cluster"
        raise ConfigError("scalebook cluster start", f"this machine {state} at {node.address}", "Stop it first.")


def _own_address(head: str) -> str:
    """By which this machine reaches the head. Sends nothing."""
    host, _, port = head.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            "--join", f"{host} cannot be reached ({error})", "Check the host name and the network."
        ) from error


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])


def _record() -> Path:
    return cluster_home() / "node.json"


def listening(node: Node) -> list[str]:
    """Every `address:port` on which a process of the node listens for TCP connections."""
    addresses: set[str] = set()
    for process in _members(node.process):
        try:
            for connection in psutil.Process(process.pid).net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    addresses.add(f"{connection.laddr.ip.removeprefix('::ffff:')}:{connection.laddr.port}")
        except psutil.Error:  # ended meanwhile
            continue
    return sorted(addresses)


KEY: Final = "cluster.address"


@dataclass(frozen=True)
class ReachedCluster:
    """The cluster that `[cluster]` names: the one of `scalebook cluster start`, or one that was started otherwise
    (KubeRay, `ray symmetric-run`, `ray start`). The latter is found by its address, or by RAY_ADDRESS, and its token by
    Ray's own variables; this machine must be one of its nodes.

    `environment`: variables that a process needs to connect. `host`: this machine's own address; "" if Ray is to find
    it.
    """

    address: str
    environment: Mapping[str, str]
    host: str = ""


def reached(address: str, environ: Mapping[str, str] = os.environ) -> ReachedCluster:
    """The cluster at `address`, which is the setting's value. ConfigError if this machine is not known to be one of its
    nodes."""
    node = here()
    if node is not None:
        if address not in ("auto", node.address):
            problem = f"is {address}, but this machine is part of the cluster at {node.address}"
            raise ConfigError(KEY, problem, 'Set address = "auto", or run `scalebook cluster stop` first.')
        return ReachedCluster(node.address, ray_environment(node.loopback), node.host)
    named = environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not is_host_and_port(named):
        problem = f"is {address}, but no cluster was started on this machine"
        fix = "Run `scalebook cluster start`, or set RAY_ADDRESS=host:port to the address of a running head."
        raise ConfigError(KEY, problem, fix)
    _require_token(named, environ)
    return ReachedCluster(named, {"RAY_USAGE_STATS_ENABLED": "0"})


def _require_token(address: str, environ: Mapping[str, str]) -> None:
    """As Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    fix = (
        "Start the cluster with RAY_AUTH_MODE=token, and set RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH on this machine too."
    )
    if environ.get("RAY_AUTH_MODE") != "token":
        raise ConfigError(
            KEY,
            f"is {address}, but RAY_AUTH_MODE is not token. Without a token, anybody can run code on the cluster",
            fix,
        )
    if environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not path.is_file():
        raise ConfigError(KEY, f"is {address}, but the cluster's token is not at {path}", fix)
    if stat.S_IMODE(path.stat().st_mode) & OWNER_ONLY:
        raise ConfigError(str(path), "can be read by other users", f"Run chmod 600 {path}.")


def connected(workspace: Workspace) -> Any:
    """The module `ray`, connected as a driver to the cluster that `[cluster]` names. ConfigError, or Ray's errors."""
    cluster = reached(workspace.settings.cluster.address)
    os.environ.update(cluster.environment)
    ray = ray_core()
    ray.init(
        address=cluster.address, namespace="scalebook", log_to_driver=False, configure_logging=False,
        _node_ip_address=cluster.host or None,
    )  # fmt: skip
    return ray
