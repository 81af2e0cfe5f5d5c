"""The description of a workspace, made by a process that may import torch, and kept until something changes."""

import hashlib
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import scalebook
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.base.modules import source_files
from scalebook.training.base.safe_path import HOME, environment, python
from scalebook.training.base.trust import trusted
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.experiments.description import Description

DEADLINE_S: Final = 120.0
"""For importing torch, lightning and the user's modules on a slow disk; usually 6 s."""

DESCRIBED: Final = (
    "zoo", "lightning", "engine/rules", "experiments/description.py", "experiments/introspect.py",
    "experiments/introspect.py", "experiments/logged.py", "cli/describe.py",
)  # fmt: skip
"""Our own sources on which the description depends, below `training/`."""


def describe(workspace: Workspace) -> Description:
    """The description of `workspace`: from its cache (about 5 ms), else by `python -m scalebook describe` (about 6 s).

    Raises ConfigError where the user's modules make that process fail as a whole or run past its deadline.
    """
    path = _kept(workspace)
    if (description := records.peek(path, Description)) is not None:
        return _of(workspace, description)
    command = python("-m", "scalebook", "describe", "--workspace", str(workspace.root.resolve()))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=True, cwd=HOME, env=environment()
        )
    except subprocess.TimeoutExpired as error:
        took = f"took more than {DEADLINE_S:g} s"
        if not workspace.settings.modules:
            raise ConfigError("describe", took, "Other programs keep this machine busy: try again later.") from error
        remedy = "Move slow work out of their top level, or try again when the machine is less busy."
        raise ConfigError(SETTINGS, f"names modules whose import {took}", remedy) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no message").splitlines()[-1]
        raise ConfigError("describe", f"failed: {last}", "Run `scalebook describe` to see the full message.") from error
    description = records.parse(path, done.stdout.encode(), Description)
    workspace.create()
    for old in workspace.cache.glob("describe-*.json"):
        old.unlink(missing_ok=True)
    with suppress(OSError):  # no room to keep it: the next one takes 6 s again
        records.save(path, description)
    return _of(workspace, description)


def is_kept(workspace: Workspace) -> bool:
    """Whether `describe` has its answer in the cache."""
    return _kept(workspace).exists()


def _kept(workspace: Workspace) -> Path:
    return workspace.cache / f"describe-{content_hash(workspace)}.json"


def _of(workspace: Workspace, description: Description) -> Description:
    """`description` with the folder and whether it is trusted, which no cache within the folder may say."""
    clustered = workspace.settings.clustered
    return replace(description, folder=str(workspace.root.resolve()), trusted=trusted(workspace), clustered=clustered)


def content_hash(workspace: Workspace) -> str:
    """A hash of all that the description depends on: versions, settings, and the sources' sizes and times."""
    digest = hashlib.sha256(f"{scalebook.__version__} {sys.version}".encode())
    settings = workspace.root / SETTINGS
    digest.update(settings.read_bytes() if settings.is_file() else b"")
    digest.update(b"trusted" if workspace.settings.modules and trusted(workspace) else b"")
    for path in [*_own_sources(), *source_files(workspace)]:
        facts = path.stat()
        digest.update(f"{path} {facts.st_mtime_ns} {facts.st_size}".encode())
    return digest.hexdigest()[:16]


def _own_sources() -> list[Path]:
    root = Path(__file__).resolve().parents[1]
    return sorted(
        path for name in DESCRIBED for path in ([root / name, *(root / name).rglob("*.py")]) if path.is_file()
    )
