"""The launcher that belongs to each executor."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from scalebook.training.base.workspace import Workspace
from scalebook.training.cluster.ray_executor import RayExecutor
from scalebook.training.cluster.ray_launcher import RayLauncher
from scalebook.training.jobs.executor import Executor
from scalebook.training.jobs.launcher import Launcher
from scalebook.training.jobs.local.local_executor import LocalExecutor
from scalebook.training.jobs.local.local_launcher import LocalLauncher
from scalebook.training.jobs.process import Children

MakesLauncher = Callable[[Workspace, Children, str | None, Sequence[str] | None], Launcher]
LAUNCHERS: Final[dict[str, MakesLauncher]] = {
    LocalExecutor.name: LocalLauncher,
    RayExecutor.name: RayLauncher,
}
"""Makers of launchers, by the executor's name."""


def launcher_of(
    executor: Executor[Any],
    workspace: Workspace,
    children: Children,
    runner: str | None = None,
    preload: Sequence[str] | None = None,
) -> Launcher:
    """The executor's launcher, for the supervisor of the workspace.

    `runner` is the `module:function` that runs a job's folder and returns an exit code, `preload` the modules to import
    beforehand; None for the defaults.
    """
    return LAUNCHERS[executor.name](workspace, children, runner, preload)
