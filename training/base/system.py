"""The one system that Scalebook runs on: its processes, locks and memory are those of Linux."""

import sys

from scalebook.training.base.errors import ConfigError


def require_linux() -> None:
    """ConfigError on any other system. Asked where a command or a strategy begins, and nowhere else."""
    if sys.platform != "linux":
        raise ConfigError("system", f"Scalebook runs on Linux, and this is {sys.platform}", "Use a machine with Linux.")
