"""The available executors. The one for clusters is loaded only if a job, or the workspace, names it."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.trust import OPTION, trusted
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.jobs.begin_request import RayHandle
from scalebook.training.jobs.executor import Executor
from scalebook.training.jobs.local.local_executor import LocalExecutor, LocalHandle

LOCAL: Final = LocalExecutor()


RAY: Final = "scalebook.training.cluster.ray_executor"
"""It lies above this package, so it is named and not imported."""


@cache
def _of_any_cluster() -> Executor[RayHandle]:
    executor: Executor[RayHandle] = import_module(RAY).RayExecutor()
    return executor


EXECUTORS: Final[dict[str, Callable[[], Executor[Any]]]] = {LOCAL.name: lambda: LOCAL, "ray": _of_any_cluster}
"""Executors by the name in their handles."""

Handle = LocalHandle | RayHandle
"""A handle of any of them."""


def executor_of(handle: Handle) -> Executor[Any]:
    """The executor that runs the job. A record that names an unknown one counts as broken and is never read as a
    handle."""
    return EXECUTORS[handle.executor]()


def configured_executor(workspace: Workspace) -> Executor[Any]:
    """The executor for jobs that start now. ConfigError if it cannot be used."""
    try:
        clustered = bool(workspace.settings.cluster)
    except ConfigError:  # whoever uses the settings says what is wrong with them
        clustered = False
    if not clustered:
        return LOCAL
    key = f"{SETTINGS}: cluster.address"
    executor: Executor[RayHandle] = import_module(RAY).of_workspace(workspace, key)
    if not trusted(workspace):
        remedy = f"Add {OPTION} to the command, once, if it is yours."
        raise ConfigError(key, "sends jobs to other nodes, from a folder that you do not trust", remedy)
    return executor
