"""How several workers train one model under a Lightning Trainer: the strategies `AsyncPS`,
`Peers` and `DDP`.

Begin with `async_ps/` or `ddp/`; `processes/` starts and watches their workers, `data/` shares the batches,
`callbacks/` measures every run. `package.py` is the only module that imports Lightning's private names.
"""

from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.async_ps.peers import Peers
from scalebook.training.lightning.ddp.ddp import DDP
from scalebook.training.lightning.package import StrategyRegistry

__all__ = ["DDP", "AsyncPS", "Peers", "register"]


def register() -> None:
    """Register the strategies as `async_ps`, `peers` and `ddp` in this process; calling it again changes nothing."""
    StrategyRegistry.register(
        "async_ps", AsyncPS, description="Asynchronous SGD with a parameter server", override=True
    )
    StrategyRegistry.register(
        "peers", Peers, description="SGD without a server: workers exchange parameters", override=True
    )
    StrategyRegistry.register("ddp", DDP, description="Lightning's DDP with forked workers", override=True)
