"""How we start processes: what lies in the current folder is never imported in place of what is installed.

A notebook's folder may hold `yaml.py`, `mlflow.py` or a package `scalebook`: by chance, or because a stranger made it.
Python would look there first, with `-m` and `-c`. And how a process imports what is large: torch, Lightning, MLflow.
"""

import gc
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import scalebook

HOME = Path(scalebook.__file__).resolve().parents[1]
"""Where the package `scalebook` lies: the current folder of processes that need none."""


def python(*words: str) -> list[str]:
    """The command line of a Python of ours, such as `python("-m", "scalebook", "jobs")`; give it `environment()`."""
    return [sys.executable, "-P", *words]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with which all that it starts, and what those start, look up modules safely."""
    environ = {**os.environ, "PYTHONSAFEPATH": "1", **more}
    if str(HOME) not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):  # not installed: a checkout
        paths = environ.get("PYTHONPATH", "").split(os.pathsep)
        environ["PYTHONPATH"] = os.pathsep.join([*filter(None, paths), *([] if str(HOME) in paths else [str(HOME)])])
    return environ


def leave_current_folder() -> None:
    """Of a process that was started without `-P`: stop looking up modules in the current folder, but for our own."""
    if not sys.flags.safe_path and sys.path and Path(sys.path[0]) in (Path(), Path.cwd()):
        del sys.path[0]
        if str(HOME) not in sys.path:
            sys.path.append(str(HOME))


@contextmanager
def importing() -> Iterator[None]:
    """No garbage is looked for while the block imports, nor ever in what is there after the first such block.

    Modules are a million objects, hardly any of them garbage: to look again and again takes a fifth of the imports'
    time. What is not looked at is not copied either, in processes that are forked from this one.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            _freeze()
            gc.enable()


@cache
def _freeze() -> None:
    """Once in a process, and not in those forked from it. To ask each time how much is frozen already takes 0.1 s."""
    gc.freeze()
