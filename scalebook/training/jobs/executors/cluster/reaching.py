"""Which cluster `[cluster]` names: that of `scalebook cluster start`, or one that somebody else has brought up.

Such a one (KubeRay, `ray symmetric-run`, `ray start`) is known by its address, or by RAY_ADDRESS, and its token by
Ray's own variables. This machine must be one of it.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.executors.cluster import daemons
from scalebook.training.jobs.executors.cluster.ray_core import ray_core
from scalebook.training.workspace import OWNER_ONLY, Workspace, is_host_and_port

KEY: Final = "cluster.address"


@dataclass(frozen=True)
class ReachedCluster:
    """`environment`: what a process must be told to meet it. `host`: of this machine; "" where Ray is to find it."""

    address: str
    environment: Mapping[str, str]
    host: str = ""


def reached(address: str, environ: Mapping[str, str] = os.environ) -> ReachedCluster:
    """`address`: as the settings say it. ConfigError where this machine is of no such cluster, as far as is known."""
    node = daemons.here()
    if node is not None:
        if address not in ("auto", node.address):
            what = f"is {address}, and this machine is part of {node.address}"
            raise ConfigError(KEY, what, 'Write address = "auto", or run `scalebook cluster stop` first.')
        return ReachedCluster(node.address, daemons.ray_environment(node.loopback), node.host)
    named = environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not is_host_and_port(named):
        what = f"is {address}, and nothing of Ray runs here that `scalebook cluster start` has started"
        raise ConfigError(KEY, what, "Run it; or set RAY_ADDRESS=host:port to that of a head that is there.")
    _require_token(named, environ)
    return ReachedCluster(named, {"RAY_USAGE_STATS_ENABLED": "0"})


def _require_token(address: str, environ: Mapping[str, str]) -> None:
    """As Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    remedy = "Bring it up with RAY_AUTH_MODE=token, and set that and RAY_AUTH_TOKEN_PATH here, too."
    if environ.get("RAY_AUTH_MODE") != "token":
        raise ConfigError(
            KEY, f"is {address}, and RAY_AUTH_MODE is not token: without one anybody may run code", remedy
        )
    if environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not path.is_file():
        raise ConfigError(KEY, f"is {address}, and its token is not at {path}", remedy)
    if stat.S_IMODE(path.stat().st_mode) & OWNER_ONLY:
        raise ConfigError(str(path), "may be read by others", f"Run chmod 600 {path}.")


def connected(workspace: Workspace) -> Any:
    """Ray, as a driver of the cluster that `[cluster]` names. ConfigError, or what Ray raises."""
    found = reached(workspace.settings.cluster.address)
    os.environ.update(found.environment)
    ray = ray_core()
    ray.init(
        address=found.address, namespace="scalebook", log_to_driver=False, configure_logging=False,
        _node_ip_address=found.host or None,
    )  # fmt: skip
    return ray
