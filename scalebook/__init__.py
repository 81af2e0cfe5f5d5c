"""Scalebook: an experiment notebook for scaling stochastic gradient descent.

    from scalebook import AsyncPS
    Trainer(strategy=AsyncPS(workers=2), accelerator="cpu", devices=2).fit(model, data)

Everything of ours lies in this one package, so that an environment may hold packages called `app` or `training` beside
it. In the repository `app`, `training` and `pages` beside this folder are links to what lies in here, and the notebooks
that ship lie beside it, with a link in here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalebook.training.strategies import DDP, AsyncPS

__all__ = ["DDP", "AsyncPS"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The strategies, when they are asked for: they bring torch and Lightning, which most commands do without."""
    if name in __all__:
        from scalebook.training import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
