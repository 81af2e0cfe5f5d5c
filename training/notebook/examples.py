"""The notebooks that come with Scalebook, copied into a folder."""

from pathlib import Path
from typing import Final

import scalebook
from scalebook.training.base import ConfigError
from scalebook.training.base.files import disk_errors

EXAMPLES: Final = scalebook.SOURCES / "notebooks"


def copy_examples(folder: Path) -> dict[Path, bool]:
    """Copy each, and say whether it was copied: an existing file stays as it is. Makes a missing folder."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(str(folder), "is a file", "Use the name of a folder.")
    copied = {}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(EXAMPLES.glob("*.md")):
            path = folder / source.name
            try:
                with path.open("xb") as file:
                    file.write(source.read_bytes())
            except FileExistsError:
                copied[path] = False
            else:
                copied[path] = True
    return copied
