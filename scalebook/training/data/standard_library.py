"""What has a docstring in Python's standard library, as bags of n-grams; read from its source, once."""

import ast
import hashlib
import os
import sys
import sysconfig
import tempfile
import tokenize
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scalebook.training.data.errors import DataError
from scalebook.training.data.ngrams import Bags, bags

FORMAT: Final = 1
"""Of the file that is kept. Raise it when other n-grams are made, or other objects taken."""
LEFT_OUT: Final = frozenset(
    {"test", "tests", "idle_test", "site-packages", "lib2to3", "idlelib", "turtledemo", "ensurepip", "distutils"}
)
"""Folders of the standard library that not every installation has."""
MOST_BYTES: Final = 1 << 28
"""Of the file that is kept; more is not ours."""


class Described(NamedTuple):
    """A function or class. `summary` is the first line of its docstring, `body` its source without the docstring."""

    module: str
    summary: str
    name: str
    body: str


@dataclass(frozen=True)
class Corpus:
    """All that is described: `queries` of the summaries, `documents` of names and bodies, `file` int64 [objects]."""

    queries: Bags
    documents: Bags
    file: np.ndarray

    @property
    def files(self) -> int:
        """How many there are; `file` counts from 0."""
        return int(self.file.max()) + 1


def corpus(folder: Path) -> Corpus:
    """The corpus of this Python, kept in the folder. DataError where its library has no source."""
    library = Path(sysconfig.get_path("stdlib"))
    key = hashlib.sha256(repr((FORMAT, sys.version, str(library))).encode()).hexdigest()[:16]
    path = folder / f"docstrings-{key}.npz"
    kept = _kept(path)
    if kept is None:
        kept = read(library)
        _keep(path, kept)
    return kept


def read(library: Path) -> Corpus:
    """The corpus of the Python files in the folder. DataError where nothing in two of them is described."""
    found = list(described(library))
    modules = {module: place for place, module in enumerate(dict.fromkeys(one.module for one in found))}
    if len(modules) < 2:
        raise DataError(f"There are no docstrings in {library}. Use a Python that comes with its library's source.")
    return Corpus(
        bags([one.summary for one in found]),
        bags([f"{one.name} {one.body}" for one in found]),
        np.array([modules[one.module] for one in found], np.int64),
    )


def described(library: Path) -> Iterator[Described]:
    """What has a docstring in the Python files of the folder; nothing is run.

    Files that this Python cannot read or parse are left out.
    """
    for path in sorted(library.rglob("*.py")):
        inside = path.relative_to(library)
        if not LEFT_OUT.intersection(inside.parts):
            yield from _described(path, inside.with_suffix("").as_posix())


def _described(path: Path, module: str) -> Iterator[Described]:
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
            yield Described(module, summary, node.name, "\n".join(body))


def _kept(path: Path) -> Corpus | None:
    """What the file holds; None where there is none, or one that is not ours."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        with path.open("rb") as file, np.load(file) as arrays:
            queries = Bags(arrays["query_hashes"], arrays["query_ends"])
            documents = Bags(arrays["document_hashes"], arrays["document_ends"])
            kept = Corpus(queries, documents, arrays["files"])
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    shapes = {len(kept.queries.ends), len(kept.documents.ends), len(kept.file)}
    whole = all(len(each.hashes) == each.ends[-1] for each in (kept.queries, kept.documents) if len(each.ends))
    return kept if len(shapes) == 1 and len(kept.file) and whole else None


def _keep(path: Path, made: Corpus) -> None:
    """Write it; a file appears whole or not at all. Where none can be written it is read anew each time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error}): each worker reads the standard library.", stacklevel=3)
        return
    try:
        with os.fdopen(handle, "wb") as out:
            np.savez(
                out,
                query_hashes=made.queries.hashes,
                query_ends=made.queries.ends,
                document_hashes=made.documents.hashes,
                document_ends=made.documents.ends,
                files=made.file,
            )
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
