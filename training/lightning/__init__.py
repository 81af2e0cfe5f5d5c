"""How several workers train one model under a Lightning Trainer: the strategies `AsyncPS`,
`Peers`, `DDP` and `ModelParallel`.

Begin with `async_ps/`, `ddp/` or `model_parallel/`; `processes/` starts and watches their workers, `data/` shares the
batches. `package.py` is the only module that imports Lightning's private names.
"""

from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.async_ps.peers import Peers
from scalebook.training.lightning.ddp.ddp import DDP
from scalebook.training.lightning.model_parallel.model_parallel import ModelParallel
from scalebook.training.lightning.package import StrategyRegistry

__all__ = ["DDP", "AsyncPS", "ModelParallel", "Peers", "register"]


def register() -> None:
    """Register the strategies in this process, as `async_ps`, `peers`, `ddp` and `model_parallel`.

    Calling it again changes nothing.
    """
    StrategyRegistry.register(
        "async_ps", AsyncPS, description="Asynchronous SGD with a parameter server", override=True
    )
    StrategyRegistry.register(
        "peers", Peers, description="SGD without a server: workers exchange parameters", override=True
    )
    StrategyRegistry.register("ddp", DDP, description="Lightning's DDP with forked workers", override=True)
    StrategyRegistry.register(
        "model_parallel",
        ModelParallel,
        description="One model over forked workers: tensor x shard, or stages",
        override=True,
    )
