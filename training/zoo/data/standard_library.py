"""The documented functions and classes of Python's standard library as bags of n-grams, read once from its source."""

import ast
import hashlib
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scalebook.training.zoo.data.cache import load_arrays, store_arrays
from scalebook.training.zoo.data.module import DataError
from scalebook.training.zoo.data.ngrams import Bags, bags

FORMAT: Final = 1
"""Version of the cache file. Raise it when other n-grams are made, or other objects taken."""
LEFT_OUT: Final = frozenset(
    {"test", "tests", "idle_test", "site-packages", "lib2to3", "idlelib", "turtledemo", "ensurepip", "distutils"}
)
"""Folders of the standard library that not every installation has."""
MOST_BYTES: Final = 1 << 28
"""Largest cache file that is read."""
NAMES: Final = ("query_hashes", "query_ends", "document_hashes", "document_ends", "files")
"""Names of the arrays in the cache file."""


class DocumentedObject(NamedTuple):
    """A function or class. `summary` is the first line of its docstring, `body` its source without the docstring."""

    module: str
    summary: str
    name: str
    body: str


@dataclass(frozen=True)
class Corpus:
    """All documented objects: `queries` from summaries, `documents` from names and bodies, `file` int64 [objects]."""

    queries: Bags
    documents: Bags
    file: np.ndarray

    @property
    def files(self) -> int:
        """How many there are; `file` counts from 0."""
        return int(self.file.max()) + 1


def corpus(folder: Path) -> Corpus:
    """The corpus of this Python, cached in the folder. DataError if its library has no source."""
    library = Path(sysconfig.get_path("stdlib"))
    key = hashlib.sha256(repr((FORMAT, sys.version, str(library))).encode()).hexdigest()[:16]
    path = folder / f"docstrings-{key}.npz"
    contents = _kept(path)
    if contents is None:
        contents = read(library)
        _keep(path, contents)
    return contents


def read(library: Path) -> Corpus:
    """The corpus of the Python files in the folder. DataError unless two of them have docstrings."""
    objects = list(described(library))
    modules = {module: place for place, module in enumerate(dict.fromkeys(entry.module for entry in objects))}
    if len(modules) < 2:
        raise DataError(
            f"There are no docstrings in {library}. Use a Python installation that includes the source of "
            f"its standard library."
        )
    return Corpus(
        bags([entry.summary for entry in objects]),
        bags([f"{entry.name} {entry.body}" for entry in objects]),
        np.array([modules[entry.module] for entry in objects], np.int64),
    )


def described(library: Path) -> Iterator[DocumentedObject]:
    """The documented functions and classes in the folder's Python files; nothing is run.

    Files that this Python cannot read or parse are left out.
    """
    for path in sorted(library.rglob("*.py")):
        inside = path.relative_to(library)
        if not LEFT_OUT.intersection(inside.parts):
            yield from _described(path, inside.with_suffix("").as_posix())


def _described(path: Path, module: str) -> Iterator[DocumentedObject]:
    try:
        with tokenize.open(path) as source, warnings.catch_warnings(action="ignore"):
            text = source.read()
            tree = ast.parse(text)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        summary = (ast.get_docstring(node) or "").strip().split("\n")[0]
        if summary:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            body = lines[node.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno : node.end_lineno]
            yield DocumentedObject(module, summary, node.name, "\n".join(body))


def _kept(path: Path) -> Corpus | None:
    """What the file holds; None where there is none, or one that is not ours."""
    arrays = load_arrays(path, NAMES, MOST_BYTES)
    if arrays is None:
        return None
    query_hashes, query_ends, document_hashes, document_ends, files = (arrays[name] for name in NAMES)
    whole = Corpus(Bags(query_hashes, query_ends), Bags(document_hashes, document_ends), files)
    shapes = {len(whole.queries.ends), len(whole.documents.ends), len(whole.file)}
    ends = all(len(each.hashes) == each.ends[-1] for each in (whole.queries, whole.documents) if len(each.ends))
    return whole if len(shapes) == 1 and len(whole.file) and ends else None


def _keep(path: Path, made: Corpus) -> None:
    arrays = (*made.queries, *made.documents, made.file)
    store_arrays(path, dict(zip(NAMES, arrays, strict=True)), "each worker reads the standard library")
