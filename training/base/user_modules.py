"""The user's own modules, which `scalebook.toml` names: found without importing them, and imported safely."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from scalebook.training.base.trust import OPTION, trusted
from scalebook.training.base.workspace import Workspace

UNTRUSTED: Final = f"not imported, because this folder is not trusted (press Trust this folder, or use {OPTION})"


def import_modules(workspace: Workspace) -> tuple[list[ModuleType], list[str]]:
    """Import the modules that `scalebook.toml` names; returns the imported ones, and `NAME: cause` for each other one.

    Imports nothing from a folder that is not trusted. The folder comes last on `sys.path`, so that its modules hide no
    others. What they print goes to standard error. It runs the user's code: only for separate processes, never in the
    app's.
    """
    imported: list[ModuleType] = []
    problems: list[str] = []
    if not trusted(workspace):
        return [], [f"{name}: {UNTRUSTED}" for name in workspace.settings.modules]
    if str(workspace.root) not in sys.path:
        sys.path.append(str(workspace.root))
    for name in workspace.settings.modules:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                imported.append(importlib.import_module(name))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises, it is said, not passed on
            problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}")
    return imported, problems


def source_files(workspace: Workspace) -> Iterator[Path]:
    """The Python files of the packages that `scalebook.toml` names, without importing them."""
    for top in sorted({name.split(".")[0] for name in workspace.settings.modules}):
        for folder in (workspace.root, *(Path(entry) for entry in sys.path if entry)):
            if (folder / top).is_dir():
                yield from sorted((folder / top).rglob("*.py"))
                break
            if (folder / f"{top}.py").is_file():
                yield folder / f"{top}.py"
                break
