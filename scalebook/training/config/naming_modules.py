"""Naming a module of a person's own in `scalebook.toml`; and a first one, from a template."""

import re
import tomllib
from pathlib import Path
from typing import Final

from scalebook.training.config.found_modules import name_problem
from scalebook.training.errors import ConfigError
from scalebook.training.files import records
from scalebook.training.files.reading import read_text
from scalebook.training.files.room import understood
from scalebook.training.workspace import SETTINGS, Workspace

TEMPLATE: Final = Path(__file__).with_name("own_model.txt")
MODULES: Final = re.compile(r"^[ \t]*modules[ \t]*=[ \t]*\[", re.M)
EMPTY: Final = re.compile(r"\s*\]")


def name_module(workspace: Workspace, name: str) -> None:
    """Add the module to `scalebook.toml`, whose other lines stay; nothing where it is named already.

    Nothing is imported: the folder is to be trusted first. ConfigError where the file cannot be read or extended.
    """
    settings = Workspace(workspace.root).settings
    if name in settings.modules:
        return
    path = workspace.root / SETTINGS
    before = read_text(path) if path.is_file() else ""
    wanted = {**tomllib.loads(before), "modules": [name, *settings.modules]}
    after = _with_module(before, name)
    try:
        understood_so = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        understood_so = False
    if not understood_so:
        remedy = f'Write modules = ["{name}", ...] there.'
        raise ConfigError(f"{SETTINGS}: modules", f"cannot be extended with {name}", remedy)
    if path.is_symlink():
        raise ConfigError(
            SETTINGS, "is a link, which Scalebook does not write to", f'Write modules = ["{name}", ...] there.'
        )
    mode = path.stat().st_mode & 0o7777 if path.exists() else None
    with understood(workspace.root):
        records.put(path, after.encode(), mode=mode)


def _with_module(before: str, name: str) -> str:
    list_ = MODULES.search(before)
    if list_ is None:
        return f'modules = ["{name}"]\n{before}'  # at the top: below a [table] it would be the table's
    comma = "" if EMPTY.match(before, list_.end()) else ", "
    return f'{before[: list_.end()]}"{name}"{comma}{before[list_.end() :]}'


def write_template(workspace: Workspace, name: str) -> Path:
    """A module `name` with a small model and its data, named in `scalebook.toml`.

    ConfigError for a name that cannot be used, and where such a file is there: that stays as it is.
    """
    path = workspace.root / f"{name}.py"
    if not name.isidentifier():
        raise ConfigError("Name of the file", f"cannot be {name!r}", "Use letters, digits and _, and no digit first.")
    if path.exists() or path.with_suffix("").exists():
        raise ConfigError("Name of the file", f"{name} is there already", "Choose another name, or use the file.")
    if problem := name_problem(workspace, name):
        message, _, remedy = problem.rpartition(". ")
        raise ConfigError("Name of the file", message, remedy)
    with understood(workspace.root), path.open("x", encoding="utf-8") as file:
        file.write(TEMPLATE.read_text(encoding="utf-8"))
    name_module(workspace, name)
    return path
