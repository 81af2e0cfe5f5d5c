"""mypy over the whole repository, as `make types` runs it: `python -m tests.check_types [OPTIONS OF MYPY]`.

mypy names a module by the folders in which its file lies. Here `training/base/errors.py` is imported as
`scalebook.training.base.errors` (scalebook/__init__.py), so mypy is given this name.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mypy.fscache import FileSystemCache
from mypy.main import process_options, run_build
from mypy.modulefinder import BuildSource
from mypy.options import Options

import scalebook

FOLDERS: Final = ("scalebook", "app", "pages", "training", "tests", "benchmarks", "docs", "hatch_build.py")
SUBPACKAGES: Final = [folder.name for folder in scalebook.SUBPACKAGES]


class Checkout(FileSystemCache):
    """The files, and an `__init__.py` next to the subpackages: mypy takes a package within another for a module only
    where the folder around it is a package, too."""

    def isfile(self, path: str) -> bool:
        return path == "__init__.py" or super().isfile(path)


def sources_and_options(arguments: Sequence[str], files: FileSystemCache) -> tuple[list[BuildSource], Options]:
    """Every file by the name that imports use."""
    found, options = process_options([*arguments, *FOLDERS], fscache=files)
    options.fast_module_lookup = True  # look among these files first
    for source in found:
        parts = Path(str(source.path)).with_suffix("").parts
        if parts[0] in SUBPACKAGES:
            source.module = ".".join(["scalebook", *parts]).removesuffix(".__init__")
    return found, options


def main() -> int:
    """0 if mypy finds nothing."""
    files = Checkout()
    sources, options = sources_and_options(sys.argv[1:], files)
    _, messages, _ = run_build(sources, options, files, time.time(), sys.stdout, sys.stderr)
    print(f"mypy: {len(messages)} messages about {len(sources)} files")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
