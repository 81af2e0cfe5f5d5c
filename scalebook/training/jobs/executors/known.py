"""Which executors there are."""

from typing import Any, Final

from scalebook.training.jobs.executors.executor import Executor
from scalebook.training.jobs.executors.local.executor import LocalExecutor, LocalHandle

LOCAL: Final = LocalExecutor()
EXECUTORS: Final[dict[str, Executor[Any]]] = {LOCAL.name: LOCAL}
"""By the name that is in their handles."""

Handle = LocalHandle
"""Of a job of any of them."""


def executor_of(handle: Handle) -> Executor[Any]:
    """Who runs the job; a record that names another one is broken, and so none."""
    return EXECUTORS[handle.executor]


def chosen() -> Executor[Any]:
    """Who runs the jobs that are started now."""
    return LOCAL
