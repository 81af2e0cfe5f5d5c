"""Where packages of version 0.1 are now: their class paths are read, and imports of them work, with a warning each.

For one version: version 0.3 does without this file.
"""

import re
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

TRAINING: Final = "scalebook.training"
MOVED: Final = {
    f"{TRAINING}.ps.policy.rules": f"{TRAINING}.engine.rules.update_rules",
    f"{TRAINING}.ps.policy.damping": f"{TRAINING}.engine.rules.damping",
    f"{TRAINING}.ps.policy.codecs": f"{TRAINING}.engine.rules.codecs",
    f"{TRAINING}.ps.policy.local": f"{TRAINING}.engine.rules.local_steps",
    f"{TRAINING}.ps.policy.clock": f"{TRAINING}.engine.rules.clock_settings",
    f"{TRAINING}.ps.codecs.kernels": f"{TRAINING}.engine.codecs.kernels",
    f"{TRAINING}.strategies": f"{TRAINING}.lightning",
    f"{TRAINING}.callbacks": f"{TRAINING}.lightning.callbacks",
    f"{TRAINING}.models": f"{TRAINING}.zoo.models",
    f"{TRAINING}.data": f"{TRAINING}.zoo.data",
    f"{TRAINING}.optimizers": f"{TRAINING}.zoo.optimizers",
}
"""The modules that people's configs and modules name, as they were called and as they are."""
CLASS_PATH: Final = re.compile(r"\w+(\.\w+)+")
_PARENTS: Final = frozenset({f"{TRAINING}.ps", f"{TRAINING}.ps.policy", f"{TRAINING}.ps.codecs"})


def path_of_now(path: str) -> str:
    """A class path of version 0.1 as this version writes it; any other text as it stands."""
    if not CLASS_PATH.fullmatch(path):
        return path
    return next((new + path.removeprefix(old) for old, new in MOVED.items() if path.startswith(f"{old}.")), path)


def _handed_out(old: str, new: str, name: str) -> Any:
    """What the new module has by this name, but for what describes that module itself, as `__file__` does."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {old!r} has no attribute {name!r}")
    return getattr(import_module(new), name)


class _OldModules(MetaPathFinder, Loader):
    """Finds the old names. A module of one of them has nothing of its own: it hands out what the new one has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MOVED and fullname not in _PARENTS:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in _PARENTS)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in MOVED:
            new = MOVED[module.__name__]
            warnings.warn(f"{module.__name__} is {new} now. Import it from there.", FutureWarning, stacklevel=2)
            module.__dict__["__getattr__"] = partial(_handed_out, module.__name__, new)


def install() -> None:
    """Let old names be imported in this process; calling it again changes nothing."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
