"""The operating system: Scalebook's processes, locks and shared memory need Linux."""

import sys

from scalebook.training.base.errors import ConfigError


def require_linux() -> None:
    """ConfigError on any system but Linux. Called where a command or a strategy starts, and nowhere else."""
    if sys.platform != "linux":
        raise ConfigError("system", f"Scalebook runs on Linux, but this is {sys.platform}", "Use a machine with Linux.")
