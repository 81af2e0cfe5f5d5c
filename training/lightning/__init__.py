"""How several workers train one model."""

from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.ddp.ddp import DDP
from scalebook.training.lightning.package import StrategyRegistry

__all__ = ["DDP", "AsyncPS", "register"]


def register() -> None:
    """Make `strategy: async_ps` and `strategy: ddp` mean ours, in this process; calling it again changes nothing."""
    StrategyRegistry.register(
        "async_ps", AsyncPS, description="Asynchronous SGD with a parameter server", override=True
    )
    StrategyRegistry.register("ddp", DDP, description="Lightning's DDP with forked workers", override=True)
