"""Models and data of a person's own that lie in the folder, found by reading: nothing is imported, nothing runs."""

import ast
import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.base import SETTINGS, ConfigError, Workspace
from scalebook.training.base.files import disk_errors, records, safe_reading

MOST_FILES: Final = 500
DEEPEST: Final = 4
"""Folders below the workspace's."""
LARGEST: Final = 500_000
"""Bytes of a file that is read."""
BASES: Final = {"LightningModule": "model", "LightningDataModule": "data"}
NOT_OURS: Final = ("site-packages", "node_modules", "__pycache__")


@dataclass(frozen=True)
class FoundModule:
    """A Python file that defines models or data; `problem` says why it cannot be used, "" where it can."""

    name: str
    """As it is imported, `my_package.models`."""
    path: Path
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    problem: str = ""


def found(workspace: Workspace) -> list[FoundModule]:
    """The modules of the folder, by path; a file that cannot be read as Python is among them if it speaks of Lightning.

    Nothing is imported, and a link out of the folder is not followed.
    """
    classes: dict[Path, dict[str, list[str]]] = {}
    problems: dict[Path, str] = {}
    for path in _files(workspace.root):
        try:
            text = safe_reading.read_text(path)
        except ConfigError:
            continue  # no text: nothing that could be imported
        try:
            classes[path] = _classes(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if "lightning" in text.lower():
                line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
                problems[path] = f"cannot be read as Python{line}. Fix the file."
    kinds = _kinds([bases for file_classes in classes.values() for bases in file_classes.items()])
    modules = []
    for path in sorted({*classes, *problems}):
        of_kind = {
            kind: tuple(name for name in classes.get(path, {}) if kinds.get(name) == kind) for kind in BASES.values()
        }
        if path in problems or any(of_kind.values()):
            name = _name(workspace.root, path)
            problem = problems.get(path) or name_problem(workspace, name)
            modules.append(FoundModule(name, path, of_kind["model"], of_kind["data"], problem))
    return modules


def name_problem(workspace: Workspace, name: str) -> str:
    """Why a module of the folder cannot have this name, and what to do; "" where it can."""
    top = name.partition(".")[0]
    if not all(part.isidentifier() for part in name.split(".")):
        return f"{name!r} cannot be imported. Use letters, digits and _ in names of files and folders."
    if top in (*sys.stdlib_module_names, "__main__"):
        return (
            f"Python's standard library has a module called {top}, which Python would import instead. Choose another "
            "name."
        )
    spec = importlib.util.find_spec(top)  # of a name without a point nothing is imported
    places = [spec.origin or "", *(spec.submodule_search_locations or [])] if spec else []
    if spec and not any(place and Path(place).is_relative_to(workspace.root.resolve()) for place in places):
        return f"An installed package is called {top}, which Python would import instead. Choose another name."
    return ""


def _files(root: Path) -> Iterator[Path]:
    """Python files within the folder, not too many; hidden folders, environments and links out of it are left out."""
    count = 0
    for folder, folders, files in os.walk(root):
        parent = Path(folder)
        depth = len(parent.relative_to(root).parts)
        subfolders = [name for name in sorted(folders) if _is_ours(parent / name)] if depth < DEEPEST else []
        folders[:] = subfolders
        for name in sorted(files):
            path = parent / name
            if (
                name.endswith(".py")
                and not safe_reading.leads_out(path, root)
                and path.is_file()
                and path.stat().st_size <= LARGEST
            ):
                count += 1
                if count > MOST_FILES:
                    return
                yield path


def _is_ours(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.name not in NOT_OURS and not (folder / "pyvenv.cfg").exists()


def _name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _classes(tree: ast.Module) -> dict[str, list[str]]:
    """The classes at the top of a module, each with the last names of its bases."""
    return {
        node.name: [base for base in map(_last_name, node.bases) if base]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _last_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):  # Base[int]
        base = base.value
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def _kinds(classes: list[tuple[str, list[str]]]) -> dict[str, str]:
    """Whether a class is a model or data, by its bases, and by theirs where these lie in the folder too."""
    kinds = dict(BASES)
    grew = True
    while grew:
        more = {name: kinds[base] for name, bases in classes if name not in kinds for base in bases if base in kinds}
        kinds.update(more)
        grew = bool(more)
    return {name: kind for name, kind in kinds.items() if name not in BASES}


TEMPLATE: Final = Path(__file__).with_name("own_model.txt")
MODULES: Final = re.compile(r"^[ \t]*modules[ \t]*=[ \t]*\[", re.M)
EMPTY: Final = re.compile(r"\s*\]")


def name_modules(workspace: Workspace, *names: str) -> None:
    """Add the modules to `scalebook.toml`, whose other lines stay; nothing where they are named already.

    Nothing is imported: the folder is to be trusted first. ConfigError where the file cannot be read or extended.
    """
    settings = Workspace(workspace.root).settings
    new = [name for name in names if name not in settings.modules]
    if not new:
        return
    path = workspace.root / SETTINGS
    before = safe_reading.read_text(path) if path.is_file() else ""
    wanted = {**tomllib.loads(before), "modules": [*new, *settings.modules]}
    after, listed = _with_modules(before, new), _listed(new)
    try:
        understood_so = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        understood_so = False
    if not understood_so:
        fix = f"Set modules = [{listed}, ...] in that file yourself."
        raise ConfigError(f"{SETTINGS}: modules", f"cannot be edited automatically to add {', '.join(new)}", fix)
    if path.is_symlink():
        raise ConfigError(
            SETTINGS,
            "is a link, and Scalebook does not write to links",
            f"Set modules = [{listed}, ...] in that file yourself.",
        )
    mode = path.stat().st_mode & 0o7777 if path.exists() else None
    with disk_errors(workspace.root):
        records.put(path, after.encode(), mode=mode)


def _with_modules(before: str, names: Sequence[str]) -> str:
    list_ = MODULES.search(before)
    if list_ is None:
        return f"modules = [{_listed(names)}]\n{before}"  # at the top: below a [table] it would be the table's
    comma = "" if EMPTY.match(before, list_.end()) else ", "
    return f"{before[: list_.end()]}{_listed(names)}{comma}{before[list_.end() :]}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def write_template(workspace: Workspace, name: str) -> Path:
    """A module `name` with a small model and its data, named in `scalebook.toml`.

    ConfigError for a name that cannot be used, and where such a file is there: that stays as it is.
    """
    path = workspace.root / f"{name}.py"
    if not name.isidentifier():
        raise ConfigError(
            "Name of the file", f"cannot be {name!r}", "Use letters, digits and _, and do not begin with a digit."
        )
    if path.exists() or path.with_suffix("").exists():
        raise ConfigError("Name of the file", f"{name} exists already", "Choose another name, or use the file.")
    if problem := name_problem(workspace, name):
        message, _, fix = problem.rpartition(". ")
        raise ConfigError("Name of the file", message, fix)
    with disk_errors(workspace.root), path.open("x", encoding="utf-8") as file:
        file.write(TEMPLATE.read_text(encoding="utf-8"))
    name_modules(workspace, name)
    return path
