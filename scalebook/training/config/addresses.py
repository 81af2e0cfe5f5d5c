"""Paths that are none: `http://...`, `s3://...`, `registry:...`, which libraries would fetch."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scalebook.training.errors import Problem

CHECKPOINT_KEY: Final = re.compile(r"(?:.*_)?(?:ckpt|checkpoint)(?:_path|_file)?", re.IGNORECASE)
"""The names under which configs give checkpoints: `ckpt_path`, `resume_from_checkpoint`, `checkpoint_file`."""

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|.*(?:://|::)", re.DOTALL)
"""A scheme with its colon, also in the middle, where fsspec chains several (`zip://a::s3://b`)."""

FETCHED: Final = ("http", "registry")
"""What Lightning takes for an address, or for Lightning's own registry of models, by its first letters alone."""


def is_address(value: str) -> bool:
    """Whether a library may take `value` for more than the path of a file here."""
    text = value.strip()
    return SCHEME.match(text) is not None or text.lower().startswith(FETCHED)


def checkpoint_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Checkpoints, at any depth of `config`, that are no files of this machine."""
    problems = [
        Problem(
            key,
            f"is the address {value!r}, but checkpoints must be local files",
            "Download it from a source you trust, and write its path (with ./ before a name that looks like an "
            "address).",
        )
        for key, value in _checkpoints(config)
        if isinstance(value, str) and is_address(value)
    ]
    checkpoint = config.get("ckpt_path")
    if checkpoint is not None and not isinstance(checkpoint, str):
        problems.append(Problem("ckpt_path", f"is {checkpoint!r}, not a path", "Write the path of a .ckpt file."))
    return problems


def _checkpoints(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            where = f"{key}.{name}" if key else str(name)
            if CHECKPOINT_KEY.fullmatch(str(name)):
                yield where, below
            yield from _checkpoints(below, where)
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from _checkpoints(below, f"{key}.{place}")
