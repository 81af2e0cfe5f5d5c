"""Scalebook: an experiment notebook for scaling stochastic gradient descent.

    from scalebook import AsyncPS
    Trainer(strategy=AsyncPS(workers=2), accelerator="cpu", devices=2).fit(model, data)

Everything of ours is installed in this one package, so that an environment may hold packages called `app` or `training`
beside it. In the repository the folders `app`, `training`, `pages` and `notebooks` lie beside this one, which has links
to them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalebook.training.lightning import DDP, AsyncPS

__all__ = ["DDP", "AsyncPS"]
__version__ = "0.1.0"

_HERE = Path(__file__).parent
if (_HERE / "training").is_symlink():  # a checkout: tracebacks name the files where they lie, not by the links
    __path__.insert(0, str(_HERE.parent))


def __getattr__(name: str) -> Any:
    """The strategies, when they are asked for: they bring torch and Lightning, which most commands do without."""
    if name in __all__:
        from scalebook.training import lightning

        return getattr(lightning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
