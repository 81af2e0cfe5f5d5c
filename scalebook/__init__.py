"""Scalebook: an experiment notebook for scaling stochastic gradient descent.

    from scalebook import AsyncPS
    Trainer(strategy=AsyncPS(workers=2), accelerator="cpu", devices=2).fit(model, data)

All of Scalebook is installed in this one package, so that an environment can have other packages called `app` or
`training`. In the repository the folders `app`, `docs`, `notebooks`, `pages` and `training` are next to this one; the
build puts them into it (pyproject.toml).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers

__all__ = ["DDP", "AsyncPS", "ModelParallel", "Peers"]
__version__ = "0.2.0"

_HERE: Final = Path(__file__).parent
SOURCES: Final = _HERE if (_HERE / "training").is_dir() else _HERE.parent
"""The folder that has `app`, `docs`, `notebooks`, `pages` and `training`: where Scalebook is installed this one, in a
checkout the repository."""
SUBPACKAGES: Final = tuple(SOURCES / name for name in ("app", "pages", "training"))
if SOURCES != _HERE:
    __path__.append(str(SOURCES))


def __getattr__(name: str) -> Any:
    """Import the strategies on first use: they import torch and Lightning, which most commands do not need."""
    if name in __all__:
        from scalebook.training import lightning

        return getattr(lightning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
