"""What a config of a folder that is not trusted may do: name classes that are known to be harmless, write within it."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError, Problem
from scalebook.training.base.files import yaml
from scalebook.training.experiments.classes import GROUP_OF_KEY
from scalebook.training.experiments.known_classes import CLASS_PATH, CLASSES, ours, paths_today

CHECKPOINT_KEY: Final = re.compile(r"(?:.*_)?(?:ckpt|checkpoint)(?:_path|_file)?", re.IGNORECASE)
"""The names under which configs give checkpoints: `ckpt_path`, `resume_from_checkpoint`, `checkpoint_file`."""
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|.*(?:://|::)", re.DOTALL)
"""A scheme with its colon, also in the middle, where fsspec chains several (`zip://a::s3://b`)."""
FETCHED: Final = ("http", "registry")
"""What Lightning takes for an address, or for Lightning's own registry of models, by its first letters alone."""


def is_address(value: str) -> bool:
    """Whether a library may take `value` for more than the path of a file here."""
    text = value.strip()
    return SCHEME.match(text) is not None or text.lower().startswith(FETCHED)


def _checkpoints(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            where = f"{key}.{name}" if key else str(name)
            if CHECKPOINT_KEY.fullmatch(str(name)):
                yield where, below
            yield from _checkpoints(below, where)
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from _checkpoints(below, f"{key}.{place}")


ALLOWED: Final = frozenset(entry.path for entry in CLASSES)
NAMED_IN: Final = ("callbacks", "logger", "plugins", "profiler")
"""Keys of the trainer under which a text may name a class."""
WORDS: Final = re.compile(r"[a-z0-9_\-]*")
"""What is no class there: `simple`, `bf16-mixed`."""
PATHS: Final = ("dirpath", "save_dir", "default_root_dir", "log_dir", "root_dir", "output_dir", "run_dir", "folder")
NAMES: Final = ("filename", "name", "version", "sub_dir", "prefix", "filename_suffix", "comment")
"""Keys, below `trainer`, of folders that runs write into, and of what is put behind those."""
IMPORTING: Final = ("trainer", "optimizer", "lr_scheduler", "model")
"""Keys of a config below which the parser imports what a text names, if the argument is a function or a class."""


def _within(value: str, root: Path, start: Path) -> bool:
    try:
        return (start / Path(value).expanduser()).resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # links in a circle, no such user, a NUL
        return False


def _harmless(name: str) -> bool:
    """Whether the class may be named, by full path or by bare name. One of ours is judged by where it is defined."""
    if "." not in name:
        return name in BARE
    if name in ALLOWED:
        return True
    entry = ours(name)  # in a text that is YAML, where the parser does not look it up by its last name
    return entry is not None and entry.path in ALLOWED and _definition(name) == _definition(entry.path) != ""


@cache
def _definition(name: str) -> str:
    """The full path of the class that `name` means, by our sources, without importing them; "" if there is none."""
    module, _, bare = name.rpartition(".")
    if not module.startswith("scalebook.training.") or not all(part.isidentifier() for part in module.split(".")):
        return ""
    path = Path(__file__).parents[1].joinpath(*module.split(".")[2:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    definition = ""
    for node in _statements(path) if path.is_file() else ():  # of several the last one counts
        if isinstance(node, ast.ClassDef) and node.name == bare:
            definition = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == bare:
                    definition = _definition(f"{node.module}.{alias.name}")
    return definition


BARE: Final = frozenset(name.rpartition(".")[2] for name in ALLOWED)


@lru_cache(maxsize=16)
def _statements(path: Path) -> list[ast.stmt]:
    """The statements of a module, with those of the interface that a package imports for type checking."""
    body = ast.parse(path.read_bytes()).body
    return [inner for node in body for inner in (node.body if isinstance(node, ast.If) else [node])]


def _classes(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every class or function that the parser would look up by a text of the config, with its key; of a model or a data
    set those by full path."""
    for key, name, value in _texts(content, ""):
        parts = key.split(".")
        named_in = parts[0] == "trainer" and parts[1:2] and parts[1] in NAMED_IN
        listed = named_in and all(part.isdigit() for part in parts[2:])
        imported = parts[0] in IMPORTING and name not in (*PATHS, *NAMES, "monitor") and _importable(value)
        if name == "class_path":
            looked_up = "." in value or named_in or key == "trainer.strategy.class_path"
        else:
            looked_up = imported or (listed and not WORDS.fullmatch(value)) or (key in GROUP_OF_KEY and "." in value)
        if looked_up:
            yield key, value


def _importable(text: str) -> bool:
    """Whether a text names something in an installed package."""
    top = text.partition(".")[0]
    return CLASS_PATH.fullmatch(text) is not None and (top in sys.modules or find_spec(top) is not None)


def _texts(value: Any, key: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text of a config: its dotted key, the last name in that key, and the text.

    As the parser sees it: `name+` appends to `name`, a dotted name is a path, and a text may be YAML.
    """
    if isinstance(value, Mapping):
        for written, below in value.items():
            name_ = str(written).rstrip("+")
            yield from _texts(below, f"{key}.{name_}" if key else name_, name_.rpartition(".")[2])
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from _texts(below, f"{key}.{place}", name)
    elif isinstance(value, str):
        yield key, name, value
        if (content := _yaml(value)) != value:
            yield from _texts(content, key, name)


def _yaml(text: str) -> Any:
    """What a text means that is YAML, if it can be more than a text; else the text."""
    if not any(letter in text for letter in "{[:\"'\n#"):
        return text
    try:
        return yaml.load(text)
    except ConfigError:
        return text


@dataclass(frozen=True)
class Confinement:
    """Looks in a config, or in what LightningCLI is given, for what is refused."""

    config: Mapping[str, Any]

    def checkpoint_problems(self) -> list[Problem]:
        """Checkpoints, at any depth, that are no files of this machine."""
        problems = [
            Problem(
                "not-local",
                key,
                f"is the web address {value!r}, but checkpoints must be local files",
                "Download the checkpoint from a source that you trust, and use the path of the file (with ./ before a "
                "name that looks like an address).",
            )
            for key, value in _checkpoints(self.config)
            if isinstance(value, str) and is_address(value)
        ]
        checkpoint = self.config.get("ckpt_path")
        if checkpoint is not None and not isinstance(checkpoint, str):
            why = f"is {checkpoint!r}, not a path"
            problems.append(Problem("wrong-type", "ckpt_path", why, "Use the path of a .ckpt file."))
        return problems

    def confine(self, folder: Path, *, typed: bool = False) -> None:
        """ConfigError, when a job begins, for what its folder, which is not trusted, may not ask for.

        `typed`: a person has named the config on the command line, and with it its classes; paths are those of their
        shell.
        """
        outside = self.path_problems(folder, Path.cwd() if typed else None)
        for problem in outside if typed else [*self.class_problems(), *outside]:
            raise ConfigError.of(problem)

    def class_problems(self) -> list[Problem]:
        """Problems of classes that run, or may run, other code than Scalebook's, and of data that would be
        downloaded."""
        fetched = [
            Problem(
                "not-trusted",
                key,
                f"is {value!r}, but Scalebook downloads from the Hub only in a folder that you trust",
                "Check the name of the data set, then trust the folder (--trust, or the button in the app).",
            )
            for key, name, value in _texts(self.config, "")
            if key.startswith("data.") and name == "hub"
        ]
        return fetched + [
            Problem(
                "not-trusted",
                key,
                f"is {name}, which can be used only in a folder that you trust",
                "Read what this class does, then trust the folder (--trust, or the button in the app).",
            )
            for key, name in _classes(paths_today(self.config))
            if not _harmless(name)
        ]

    def path_problems(self, folder: Path, start: Path | None = None) -> list[Problem]:
        """Problems of paths outside of `folder` where the trainer's parts would write; they begin in `start`, else
        `folder`."""
        root = folder.resolve()
        problems = []
        for key, name, value in _texts(self.config, ""):
            if not key.startswith("trainer."):
                continue
            if name in PATHS:
                outside = is_address(value) or not _within(value, root, start or root)
            else:
                outside = name in NAMES and (
                    Path(value).is_absolute() or ".." in Path(value).parts or is_address(value)
                )
            if outside:
                problems.append(
                    Problem(
                        "outside-workspace",
                        key,
                        f"is {value!r}, outside the workspace {root}",
                        "Use a path within the workspace, or trust the folder (--trust, or the button in the app).",
                    )
                )
        return problems
