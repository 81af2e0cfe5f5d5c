"""Jobs on the nodes of a Ray cluster: an agent on each node, and one daemon here. Only these two import Ray.

Begin with `ray_executor.py` and `ray_launcher.py`, which leave requests in the spool (`cluster_spool.py`);
`cluster_daemon.py` connects to the nodes, with a `node_connection.py` for each; `agent.py` starts jobs there.
`outgoing_files.py` and `incoming_files.py` carry what a job needs and writes.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.cluster import ray_daemons
    from scalebook.training.cluster.cluster_token import token_file
    from scalebook.training.cluster.ray_executor import RayExecutor
    from scalebook.training.cluster.ray_launcher import RayLauncher

__all__ = ["RayExecutor", "RayLauncher", "ray_daemons", "token_file"]

__getattr__ = interface(__name__)
