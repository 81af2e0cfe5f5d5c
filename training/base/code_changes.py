"""Which of the user's own modules a config uses, found by reading, without importing.

Their content is recorded with each run, and shows later whether the code has changed. A module is the user's own if it
lies in the workspace, or if `scalebook.toml` names it and it was installed from a folder (`pip install -e`). Imports by
a name made at run time are not found; nor are files that the code reads.
"""

import ast
import hashlib
import importlib.util
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import scalebook
from scalebook.training.base.files.safe_reading import leads_out, whole
from scalebook.training.base.workspace import Workspace

OURS: Final = (Path(scalebook.__file__).parent, *scalebook.SUBPACKAGES)
INSTALLED: Final = tuple(folder.resolve() for folder in (Path(sys.prefix), Path(sys.base_prefix), *OURS))
"""Folders that hold no code of the user's own."""
MOST_FILES: Final = 100
LARGEST: Final = 500_000
"""The largest file, bytes."""
MOST_BYTES: Final = 2_000_000
"""The most bytes of all files together."""
LONGEST_RECORD: Final = 5_000
"""The longest record, characters; MLflow takes 8,000 in a tag."""
DIGITS: Final = 10
MORE: Final = "..."
"""Key in a record for the number of files left out."""


@dataclass(frozen=True)
class OwnFile:
    """A file and its content. `name` is its path from the folder of its package: `my_package/models.py`."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        return _digest(self.content)


@dataclass(frozen=True)
class OwnModules:
    """The files that a config uses: first those that it names, then what they import. `left_out`: how many more there
    are that are too large, too many or not readable."""

    files: Sequence[OwnFile] = ()
    left_out: int = 0

    def record(self) -> str:
        """The files as a tag: JSON, file -> beginning of its SHA-256; "" if there are none."""
        digests: dict[str, str] = {}
        size = 0
        for file in self.files:
            size += len(json.dumps(file.name)) + DIGITS + 6
            if size > LONGEST_RECORD:
                break
            digests[file.name] = file.digest
        if more := self.left_out + len(self.files) - len(digests):
            digests[MORE] = str(more)
        return json.dumps(digests) if digests else ""


def used(workspace: Workspace, content: Mapping[str, Any]) -> OwnModules:
    """The user's own modules that a config or a search uses; its classes must have full names. Reads MOST_FILES and
    MOST_BYTES at most."""
    search = _Search(workspace)
    for name in _names(content):
        search.add(name)
    return search.files()


@dataclass
class _Search:
    workspace: Workspace
    _waiting: deque[tuple[Path, str]] = field(default_factory=deque)
    _seen: set[str] = field(default_factory=set)
    _bases: dict[str, Path | None] = field(default_factory=dict)

    def add(self, dotted: str) -> None:
        """The files of the module `dotted` and of the packages around it, as far as they are a person's own. Its last
        parts may be names within a module."""
        parts = dotted.split(".")
        if (base := self._base(parts[0])) is None:
            return
        for length in range(1, len(parts) + 1):
            place = base.joinpath(*parts[:length])
            for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if os.path.lexists(path):
                    self._add(base, path)
                    break
            if not place.is_dir():
                return

    def files(self) -> OwnModules:
        files: list[OwnFile] = []
        size = left_out = 0
        while self._waiting:
            base, name = self._waiting.popleft()
            content = _content(base, name)
            if content is None or len(files) == MOST_FILES or size + len(content) > MOST_BYTES:
                left_out += 1
                continue
            size += len(content)
            files.append(OwnFile(name, content))
            for dotted in _imports(content, name):
                self.add(dotted)
        return OwnModules(files, left_out)

    def _add(self, base: Path, path: Path) -> None:
        name = path.relative_to(base).as_posix()
        if name not in self._seen:
            self._seen.add(name)
            self._waiting.append((base, name))

    def _base(self, top: str) -> Path | None:
        if top not in self._bases:
            self._bases[top] = _base(self.workspace, top)
        return self._bases[top]


def _base(workspace: Workspace, top: str) -> Path | None:
    """The folder in which Python finds the module `top`, if it is a person's own. Of a name without a point
    `find_spec` imports nothing."""
    if not top.isidentifier() or top in (*sys.stdlib_module_names, "__main__", "scalebook"):
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # made by hand: without a place
        return None
    root = workspace.root.resolve()
    if spec is None:
        there = (root / top).is_dir() or (root / f"{top}.py").is_file()
        return root if there else None
    paths = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.has_location and spec.origin else [])]
    places = [Path(place).resolve() for place in paths]
    if not places or any(place.is_relative_to(folder) for place in places for folder in INSTALLED):
        return None
    if any(place.is_relative_to(root) for place in places):
        return root
    named = {name.partition(".")[0] for name in workspace.settings.modules}
    return places[0].parent if top in named else None


def _names(value: Any) -> Iterator[str]:
    """What may name something within a module, anywhere in a config."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)
    elif isinstance(value, str) and "." in value and all(part.isidentifier() for part in value.split(".")):
        yield value


def _imports(content: bytes, name: str) -> Iterator[str]:
    """What a file imports, anywhere in it, by full names; those of what it takes from a module may be modules too."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    package = PurePosixPath(name).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*around, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names if module)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") and node.args:
            argument = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if isinstance(argument, str) and argument:
                level = len(argument) - len(argument.lstrip("."))
                around = package[: len(package) - level + 1] if level else ()
                yield ".".join([*around, *filter(None, [argument.lstrip(".")])])


def _called(node: ast.Call) -> str:
    """The last part of a function's name."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _content(base: Path, name: str) -> bytes | None:
    """None of a file that is none, too large, or beyond a link out of the folder."""
    path = base / name
    if leads_out(path, base):
        return None
    try:
        return whole(path.resolve(), LARGEST)
    except (OSError, RuntimeError):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


class CodeNow:
    """Checks whether recorded code is unchanged. For one view of a page: it caches its answers."""

    def __init__(self, folder: str) -> None:
        """`folder`: the workspace; "" if it is not known: then nothing counts as changed."""
        self._workspace = Workspace(Path(folder)) if folder else None
        self._answers: dict[str, list[str]] = {}
        self._bases: dict[str, Path | None] = {}

    def changed(self, record: str) -> list[str]:
        """The files in a record (`OwnModules.record`) that have changed or are gone. A record may be a stranger's:
        nothing outside its package's folder is read."""
        if self._workspace is None or not record:
            return []
        if record not in self._answers:
            entries = recorded_files(record).items()
            self._answers[record] = [name for name, digest in entries if self.digest(name) != digest]
        return self._answers[record]

    def digest(self, name: str) -> str:
        """The digest of a file that a record names, as it is now; "" where there is no such file any more."""
        if self._workspace is None:
            return ""
        workspace = self._workspace
        top = Path(name).parts[0].removesuffix(".py")
        if top not in self._bases:
            self._bases[top] = _base(workspace, top)
        base = self._bases[top]
        if base is None or leads_out(base / name, base):
            return ""
        try:
            facts = (base / name).stat()
        except (OSError, ValueError):
            return ""
        return _digest_of(base, name, facts.st_mtime_ns, facts.st_size, facts.st_ino)


def recorded_files(record: str) -> dict[str, str]:
    """File -> digest, from a record; empty if Scalebook did not write it."""
    try:
        content = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    pairs = content.items() if isinstance(content, dict) else ()
    return {
        name: str(digest)
        for name, digest in pairs
        if name.endswith(".py") and not name.startswith("/") and ".." not in Path(name).parts
    }


@lru_cache(maxsize=4096)
def _digest_of(base: Path, name: str, _changed: int, _size: int, _inode: int) -> str:
    content = _content(base, name)
    return "" if content is None else _digest(content)


def file_list(files: Sequence[str]) -> str:
    """`models.py, layers.py, nets.py and 2 more`."""
    text = ", ".join(files[:3])
    return f"{text} and {len(files) - 3} more" if len(files) > 3 else " and ".join(text.rsplit(", ", 1))


def changed_words(changed: Iterable[str]) -> str:
    """`the config has changed`; `models.py and layers.py have changed`."""
    words = " and ".join(dict.fromkeys(changed))
    return f"{words} {'have' if ' and ' in words else 'has'} changed"
