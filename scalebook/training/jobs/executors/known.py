"""Which executors there are. What runs jobs on a cluster is loaded only where a job, or the workspace, names it."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.executors.beginning import RayHandle
from scalebook.training.jobs.executors.executor import Executor
from scalebook.training.jobs.executors.local.executor import LocalExecutor, LocalHandle
from scalebook.training.trust import OPTION, trusted
from scalebook.training.workspace import SETTINGS, Workspace

LOCAL: Final = LocalExecutor()


@cache
def _of_any_cluster() -> Executor[RayHandle]:
    from scalebook.training.jobs.executors.cluster.executor import RayExecutor

    return RayExecutor()


EXECUTORS: Final[dict[str, Callable[[], Executor[Any]]]] = {LOCAL.name: lambda: LOCAL, "ray": _of_any_cluster}
"""By the name that is in their handles."""

Handle = LocalHandle | RayHandle
"""Of a job of any of them."""


def executor_of(handle: Handle) -> Executor[Any]:
    """Who runs the job; a record that names another one is broken, and so none."""
    return EXECUTORS[handle.executor]()


def chosen(workspace: Workspace) -> Executor[Any]:
    """Who runs the jobs that are started now. ConfigError where that cannot be."""
    try:
        clustered = bool(workspace.settings.cluster)
    except ConfigError:  # whoever uses the settings says what is wrong with them
        clustered = False
    if not clustered:
        return LOCAL
    from scalebook.training.jobs.executors.cluster.executor import RayExecutor
    from scalebook.training.jobs.executors.cluster.ray_core import require_ray

    key = f"{SETTINGS}: cluster.address"
    require_ray(key)
    if not trusted(workspace):
        remedy = f"Add {OPTION} to the command, once, if it is yours."
        raise ConfigError(key, "sends jobs to other machines, from a folder that you do not trust", remedy)
    return RayExecutor(workspace)
