"""How Scalebook starts processes: no module in the current folder is imported in place of an installed one.

A notebook's folder may hold `yaml.py`, `mlflow.py` or a package `scalebook`, by chance or by a stranger's intent; with
`-m` and `-c` Python would look there first. Also: how a process imports large packages (torch, Lightning, MLflow).
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
"""The folder of the package `scalebook`, and the current folder of processes that need none."""


def python(*words: str) -> list[str]:
    """The command line of one of our Python processes, such as `python("-m", "scalebook", "jobs")`; give it
    `environment()`."""
    return [sys.executable, "-P", *words]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, changed so that all descendants look up modules safely. Relative folders in
    PYTHONPATH, which would be other folders for them, are left out."""
    environ = {**os.environ, "PYTHONSAFEPATH": "1", **more}
    paths = [path for path in environ.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    if str(HOME) not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):  # not installed: a checkout
        paths += [] if str(HOME) in paths else [str(HOME)]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else environ


def leave_current_folder() -> None:
    """Stop looking up modules in the current folder, except our own, in a process that was started without `-P`."""
    if not sys.flags.safe_path and sys.path and Path(sys.path[0]) in (Path(), Path.cwd()):
        del sys.path[0]
        if str(HOME) not in sys.path:
            sys.path.append(str(HOME))


@contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off while the block imports; objects that exist after the first such block are never
    collected.

    Modules are a million objects, hardly any of them garbage: collecting takes a fifth of the imports' time. Objects
    that the collector leaves alone are also not copied in forked processes.
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
