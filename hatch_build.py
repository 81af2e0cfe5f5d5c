"""A hook of the build: without one of the folders of which the package is made, it fails."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = ("scalebook/__init__.py", "app/main.py", "docs/index.md", "notebooks/first-steps.md", "pages/runs.py",
         "training/__init__.py")  # fmt: skip
"""A file of each."""


class RequireFolders(BuildHookInterface):  # type: ignore[misc]  # hatchling is there only while it builds
    """Hatch would leave out a folder that is not there, and say that it has built the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before any file is added."""
        if missing := [part for part in PARTS if not Path(self.root, part).is_file()]:
            raise FileNotFoundError(
                f"{self.root} has no {', '.join(missing)}: Scalebook is built of the folders "
                f"{', '.join(part.partition('/')[0] for part in PARTS)}. Unpack or clone the whole repository again."
            )
