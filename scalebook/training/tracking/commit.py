"""The git commit of a folder, and whether its files differ from it; found without running anything of the repository.

A folder may be a stranger's: its `.git/config` can name programs (a file system monitor, filters, a transport) that git
runs when it looks at files. The commit is asked of `rev-parse`, which looks at none; whether files differ of a git
directory made for the question, which has the repository's objects and index, and no settings.
"""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

DEADLINE_S: Final = 3.0
"""Of each of the two questions; a few ms where the machine is free."""
LASTING_S: Final = 5.0
"""So long an answer is given again: a search makes several runs a second."""
SAFE: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")
NO_SETTINGS: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
CONFIG: Final = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {format}\n"


@dataclass(frozen=True)
class Commit:
    """`changed`: whether a file that git knows, in the folder or below it, differs; None where that is not known."""

    id: str
    changed: bool | None


_known: dict[Path, tuple[float, Commit | None]] = {}


def commit_of(folder: Path) -> Commit | None:
    """None where the folder is in no repository of this user's, or git is missing or too slow."""
    at, commit = _known.get(folder, (0.0, None))
    if not at or time.monotonic() - at > LASTING_S:
        commit = _asked(folder)
        _known[folder] = time.monotonic(), commit
    return commit


def _asked(folder: Path) -> Commit | None:
    words = ("rev-parse", "HEAD", "--show-toplevel", "--git-path", "objects", "--git-path", "index")
    lines = (_git(folder, *words) or "").splitlines()
    if len(lines) != 4:  # also in a bare repository, and of paths with a line break
        return None
    commit, top, objects, index = lines
    if not all(sign in "0123456789abcdef" for sign in commit) or len(commit) not in (40, 64):
        return None
    with tempfile.TemporaryDirectory(prefix="scalebook-git-") as made:
        place = Path(made)
        (place / "HEAD").write_text(f"{commit}\n", encoding="ascii")
        (place / "config").write_text(CONFIG.format(format="sha1" if len(commit) == 40 else "sha256"), encoding="ascii")
        for needed in ("refs", "objects"):
            (place / needed).mkdir()
        here = {"GIT_OBJECT_DIRECTORY": str(folder / objects), "GIT_INDEX_FILE": str(folder / index), **NO_SETTINGS}
        words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all", "--no-renames", "--", ".")
        told = _git(folder, f"--git-dir={place}", f"--work-tree={top}", *words, **here)
    return Commit(commit, None if told is None else bool(told.strip()))


def _git(folder: Path, *words: str, **more: str) -> str | None:
    """What git prints; None where it fails or takes too long."""
    if (program := which("git")) is None:
        return None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, *SAFE, "-C", str(folder), *words], env={**environment, **more}, capture_output=True,
            text=True, timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return done.stdout if done.returncode == 0 else None
