"""What every package uses: errors with key and remedy, files and records, workspaces, trust, node ranks.

Begin with `errors.py` (how a user's mistake is reported), `workspace.py` (the folder that a user works in) and `files/`
(safe reading, atomic writing). Nothing here knows of training, jobs or notebooks.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.base import (
        active_run,
        code_changes,
        extras,
        failures,
        files,
        node_rank,
        processes,
        safe_path,
        trust,
        validation_interval,
    )
    from scalebook.training.base.durations import duration, roughly
    from scalebook.training.base.errors import LONGEST_KEY, ConfigError, Problem, one_line
    from scalebook.training.base.failures import (
        Diverged,
        FailureClass,
        NodeLost,
        ProcessLost,
        ServerLost,
        TimedOut,
        WorkerLost,
    )
    from scalebook.training.base.memory import (
        MB,
        available_bytes,
        data_bytes,
        free_bytes,
        memory_limit,
    )
    from scalebook.training.base.node_rank import NodeRank
    from scalebook.training.base.processes import Children, ProcessId
    from scalebook.training.base.system import require_linux
    from scalebook.training.base.user_modules import UNTRUSTED, import_modules, source_files
    from scalebook.training.base.workspace import (
        HIDDEN,
        OWNER_ONLY,
        SETTINGS,
        NotifySettings,
        Workspace,
        is_host_and_port,
        sqlite_address,
        state_home,
    )

__all__ = [
    "HIDDEN", "LONGEST_KEY", "MB", "OWNER_ONLY", "SETTINGS", "UNTRUSTED", "Children", "ConfigError", "Diverged",
    "FailureClass", "NodeLost", "NodeRank", "NotifySettings", "Problem", "ProcessId", "ProcessLost", "ServerLost",
    "TimedOut", "WorkerLost", "Workspace", "active_run", "available_bytes", "code_changes", "data_bytes", "duration",
    "extras", "failures", "files", "free_bytes", "import_modules", "is_host_and_port", "memory_limit", "node_rank",
    "one_line", "processes", "require_linux", "roughly", "safe_path", "source_files", "sqlite_address", "state_home",
    "trust", "validation_interval",
]  # fmt: skip

__getattr__ = interface(__name__)
