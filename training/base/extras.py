"""Packages that a class of ours needs and only an extra of Scalebook installs (pyproject.toml)."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final, NamedTuple

from scalebook.training.base.errors import ConfigError

EXAMPLES: Final = "examples"
PACKAGES: Final = {
    "datasets": ("datasets", "datasets"),
    "jupyterlab_language_pack_fr_FR": ("jupyterlab-language-pack-fr-FR", EXAMPLES),
    "sentencepiece": ("sentencepiece", EXAMPLES),
    "sklearn": ("scikit-learn", EXAMPLES),
}
"""By the module to import: the package, and the extra that installs it."""


class MissingPackages(NamedTuple):
    """Why a class cannot be used here, as the rest of a sentence, and what to do about it."""

    why: str
    fix: str


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "scalebook[{extra}]"'


def missing_modules() -> list[str]:
    """The modules of `PACKAGES` that are not installed."""
    return [module for module in PACKAGES if find_spec(module) is None]


def missing_packages(kind: type) -> MissingPackages | None:
    """What is not installed of the modules in the class's `needs`; None if nothing is missing. The class may be
    anybody's, so `needs` may be anything."""
    needs = getattr(kind, "needs", ())
    lacking = [PACKAGES[module] for module in missing_modules() if isinstance(needs, Sequence) and module in needs]
    if not lacking:
        return None
    names, verb = " and ".join(package for package, _ in lacking), "is" if len(lacking) == 1 else "are"
    return MissingPackages(f"needs {names}, which {verb} not installed", f"Run {install(lacking[0][1])}.")


def require(key: str, kind: type) -> None:
    """Raise ConfigError for `key` if a package that the class needs is not installed."""
    if packages := missing_packages(kind):
        raise ConfigError(key, f"is {kind.__name__}, which {packages.why}", packages.fix)
