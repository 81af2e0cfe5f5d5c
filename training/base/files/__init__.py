"""Files that people and processes write: read safely, written atomically.

Begin with `records.py` (small files of one type each, by which processes know of each other), `yaml.py` (configs, with
the line of a mistake) and `safe_reading.py` (whatever is wrong with a file is said in one line).
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.base.files import (
        locks,
        records,
        safe_reading,
        terminal,
        yaml,
        yaml_flow,
    )
    from scalebook.training.base.files.lossy_output import forgive
    from scalebook.training.base.files.machine_errors import (
        EXIT_NO_ROOM,
        NoRoom,
        disk_errors,
        disk_problem,
        is_full,
        refusals_told,
        require_room,
        says_full,
    )
    from scalebook.training.base.files.parser import HELP, CommandParser, add_command
    from scalebook.training.base.files.record_folder import RecordFolder, forget_records, load_once
    from scalebook.training.base.files.records import BrokenRecord
    from scalebook.training.base.files.secret import kept_secret, put_secret
    from scalebook.training.base.files.terminal import EscapingStream

__all__ = [
    "EXIT_NO_ROOM", "HELP", "BrokenRecord", "CommandParser", "EscapingStream", "NoRoom", "RecordFolder", "add_command",
    "disk_errors", "disk_problem", "forget_records", "forgive", "is_full", "kept_secret", "load_once", "locks",
    "put_secret", "records", "refusals_told", "require_room", "safe_reading", "says_full", "terminal", "yaml",
    "yaml_flow",
]  # fmt: skip

__getattr__ = interface(__name__)
