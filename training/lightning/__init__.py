"""How several workers train one model under a Lightning Trainer: the strategies `AsyncPS`,
`Peers`, `DDP` and `ModelParallel`.

Begin with `async_ps/`, `ddp/` or `model_parallel/`; `processes/` starts and watches their workers, `data/` shares the
batches. `package.py` is the only module that imports Lightning's private names.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.lightning.async_ps.applied_step import CountsUpdates, ScaledRate
    from scalebook.training.lightning.async_ps.async_ps import AsyncPS
    from scalebook.training.lightning.async_ps.engine_strategy import EngineStrategy
    from scalebook.training.lightning.async_ps.peers import Peers
    from scalebook.training.lightning.ddp.ddp import DDP
    from scalebook.training.lightning.empty_hooks import SkipsEmptyHooks
    from scalebook.training.lightning.model_parallel.model_parallel import ModelParallel
    from scalebook.training.lightning.package import PACKAGE
    from scalebook.training.lightning.process_group.forked_group import ForkedGroup, batches_at_once
    from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
    from scalebook.training.lightning.processes.deaths import HearsOfDeaths
    from scalebook.training.lightning.processes.forked import EndedEarly, Terminated, WorkerTraceback, why_terminated
    from scalebook.training.lightning.processes.process_watch import LostProcess
    from scalebook.training.lightning.run_figures import RunFigures, figures_of

__all__ = [
    "DDP", "PACKAGE", "AsyncPS", "CountsUpdates", "EndedEarly", "EngineStrategy", "ForkedGroup", "HearsOfDeaths",
    "LostProcess", "ModelParallel", "Peers", "RunFigures", "ScaledRate", "SkipsEmptyHooks", "Terminated",
    "WorkerTraceback", "batches_at_once", "figures_of", "prepare_for_forks", "register", "why_terminated",
]  # fmt: skip

__getattr__ = interface(__name__)


def register() -> None:
    """Register the strategies in this process, as `async_ps`, `peers`, `ddp` and `model_parallel`.

    Calling it again changes nothing.
    """
    from scalebook.training.lightning.async_ps.async_ps import AsyncPS
    from scalebook.training.lightning.async_ps.peers import Peers
    from scalebook.training.lightning.ddp.ddp import DDP
    from scalebook.training.lightning.model_parallel.model_parallel import ModelParallel
    from scalebook.training.lightning.package import StrategyRegistry

    described = {
        "async_ps": (AsyncPS, "Asynchronous SGD with a parameter server"),
        "peers": (Peers, "SGD without a server: workers exchange parameters"),
        "ddp": (DDP, "Lightning's DDP with forked workers"),
        "model_parallel": (ModelParallel, "One model over forked workers: tensor x shard, or stages"),
    }
    for name, (strategy, description) in described.items():
        StrategyRegistry.register(name, strategy, description=description, override=True)
