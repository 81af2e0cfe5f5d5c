"""Imports Ray Core, if the extra `cluster` is installed. Nothing else in Scalebook imports it."""

import importlib
import importlib.util
from typing import Any, Final

from scalebook.training.base import ConfigError

REMEDY: Final = "Run pip install 'scalebook[cluster]', here and on each node of the cluster."


def installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def require_ray(key: str) -> None:
    """ConfigError for `key` if Ray is not installed. Does not import it."""
    if not installed():
        raise ConfigError(key, "needs Ray, which is not installed", REMEDY)


def ray_core() -> Any:
    """The module `ray`, imported at the first call (3 s)."""
    require_ray("scalebook cluster")
    return importlib.import_module("ray")
