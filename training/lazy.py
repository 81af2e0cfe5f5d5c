"""The interface of a package, imported name by name when it is first used.

So a command that needs one class of a package does not load the rest of it, let alone torch.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def interface(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose `__init__` imports its interface under `if TYPE_CHECKING:`.

    Each name is thereby written where readers and type checkers expect it, and imported from there on first use.
    """

    def load(name: str) -> Any:
        if name not in _modules(package):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(_modules(package)[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


@cache
def _modules(package: str) -> dict[str, str]:
    """The module of each name that the `__init__` imports for type checking; modules of the package itself are left to
    Python."""
    blocks = [node for node in ast.parse(_source(package)).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module
        for node in imports
        for alias in node.names
        if node.module is not None and node.module != package
    }


def _source(package: str) -> str:
    return Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
