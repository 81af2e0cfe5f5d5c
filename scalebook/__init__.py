"""Scalebook: an experiment notebook for scaling stochastic gradient descent.

    from scalebook import AsyncPS
    Trainer(strategy=AsyncPS(workers=2), accelerator="cpu", devices=2).fit(model, data)

All of Scalebook is installed in this one package, so that an environment can have other packages called `app` or
`training`. In the repository the folders `app`, `training`, `pages` and `notebooks` are beside this one, which has
links to them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers

__all__ = ["DDP", "AsyncPS", "ModelParallel", "Peers"]
__version__ = "0.2.0"

_HERE = Path(__file__).parent
if (_HERE / "training").is_symlink():  # a checkout: tracebacks name the files where they lie, not by the links
    __path__.insert(0, str(_HERE.parent))


def __getattr__(name: str) -> Any:
    """Import the strategies on first use: they import torch and Lightning, which most commands do not need."""
    if name in __all__:
        from scalebook.training import lightning

        return getattr(lightning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
