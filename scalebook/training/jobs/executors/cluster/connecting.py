"""Ray, as a driver of the cluster that a workspace names."""

import os
from typing import Any

from scalebook.training.jobs.executors.cluster.ray_core import ray_core
from scalebook.training.jobs.executors.cluster.reaching import reached
from scalebook.training.workspace import Workspace


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
