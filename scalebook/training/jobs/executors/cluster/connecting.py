"""Ray, as a driver of the cluster that a workspace names."""

import os
from typing import Any

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.executors.cluster import daemons
from scalebook.training.jobs.executors.cluster.ray_core import ray_core
from scalebook.training.workspace import Workspace


def connected(workspace: Workspace) -> Any:
    """Ray, as a driver of the cluster that `[cluster]` names. ConfigError, or what Ray raises."""
    address, node = workspace.settings.cluster.address, daemons.here()
    if node is None or address not in ("auto", node.address):
        what = "nothing of Ray runs on this machine" if node is None else f"this machine is part of {node.address}"
        raise ConfigError("cluster.address", f"is {address}, and {what}", "Run `scalebook cluster start`.")
    os.environ.update(daemons.ray_environment(node.loopback))
    ray = ray_core()
    ray.init(
        address=node.address, namespace="scalebook", log_to_driver=False, configure_logging=False,
        _node_ip_address=node.host,
    )  # fmt: skip
    return ray
