"""Where data is kept that was downloaded or made."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The per-user folder: `$XDG_CACHE_HOME/scalebook`, by default `~/.cache/scalebook`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalebook"
