"""In the place of the strategy that a Trainer gets when nothing is said: ours, or what it is compared with."""

import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final, Literal

import pytest
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.strategies.launchers.launcher import _Launcher
from lightning.pytorch.trainer.states import TrainerStatus
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel
from torch.nn import Linear
from typing_extensions import override

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.model_parallel.model_parallel import ModelParallel
from scalebook.training.lightning.processes.strategy_launcher import AroundFork
from scalebook.training.lightning.tuners import is_finder

Way = Literal["one", "two", "sync", "shard", "tensor", "plain", "fork"]
BASELINES: dict[Way, Way] = {"one": "plain", "two": "fork", "sync": "fork", "shard": "fork", "tensor": "fork"}
SINGLE, SEVERAL = ("SingleDeviceStrategy",), ("DDPStrategy", "_MultiProcessingLauncher")
CLASSES: dict[Way, tuple[str, ...]] = {
    "one": SINGLE, "plain": SINGLE, "two": SEVERAL, "sync": SEVERAL, "shard": SEVERAL, "tensor": SEVERAL,
    "fork": SEVERAL,
}  # fmt: skip
"""Strategy and launcher that a Trainer has in the place of ours."""
BAR_OFF: Final = "SCALEBOOK_BAR_OFF"
"""Set in the environment: Trainers have no progress bar, unless the test says so."""


class _Here(_Launcher):
    """Starts the only worker in this process; what the real launcher does before it forks is done."""

    def __init__(self, around: AroundFork) -> None:
        self._around = around

    @property
    @override
    def is_interactive_compatible(self) -> bool:
        return True

    @override
    def kill(self, signum: int) -> None:
        """There is nothing to kill."""

    @override
    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        assert trainer is not None
        if self._around.tune(trainer, partial(function, *args, **kwargs), (*args, *kwargs.values())):
            trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
            return None
        return function(*args, **kwargs)


class OneWorker(AsyncPS):
    """AsyncPS with its only worker in this process, where the tests can look at what it did. All else is as forked."""

    def __init__(self) -> None:
        super().__init__(workers=1, limits=Limits(deadline_s=20))
        self._entered, self._finders = False, list[Callback]()

    @override
    def _configure_launcher(self) -> None:
        self._run.configure(1, 1)
        self._launcher = _Here(self._run)

    @override
    def setup_environment(self) -> None:
        if not self._entered:
            self._entered = True
            self._finders = [one for one in self._trainer.callbacks if is_finder(one)]  # type: ignore[attr-defined]
            self._run.before_fork(self._trainer)
            self._run.after_fork(0, self._trainer)
        super().setup_environment()

    @override
    def teardown(self) -> None:
        super().teardown()
        if self._entered:
            self._entered = False
            theirs = (one for one in self._trainer.callbacks if not _is_ours(one))  # type: ignore[attr-defined]
            self._trainer.callbacks = [*self._finders, *theirs]  # type: ignore[attr-defined]  # the caller's own list
            self._run.after_workers()
            for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "NODE_RANK"):
                os.environ.pop(name, None)


def _is_ours(callback: Callback) -> bool:
    """Whether the strategy has put it among the worker's callbacks."""
    return type(callback).__module__.startswith("scalebook.training.lightning.async_ps.")


def strategy(way: Way) -> dict[str, Any]:
    """Arguments of a Trainer."""
    if way == "one":
        return {"strategy": OneWorker()}
    if way in ("shard", "tensor"):
        made = ModelParallel(shard=2) if way == "shard" else ModelParallel(tensor=2)
        return {"strategy": made, "accelerator": "cpu", "devices": 2}
    if way in ("two", "sync"):
        return {"strategy": AsyncPS(rule="async" if way == "two" else "sync", workers=2, limits=Limits(deadline_s=20))}
    return {} if way == "plain" else {"strategy": "ddp_fork", "accelerator": "cpu", "devices": 2}


class Substitute:
    """Wraps `Trainer.__init__` until `end`; counts the Trainers that got the strategy."""

    def __init__(self, way: Way) -> None:
        self._way, self.count = way, 0
        self._original: Callable[..., None] = Trainer.__init__
        original = self._original

        @wraps(original)
        def construct(trainer: Trainer, *args: Any, **kwargs: Any) -> None:
            if not args and _says_nothing(kwargs):
                self.count += 1
                bar = {} if BAR_OFF not in os.environ or _has_bar(kwargs) else {"enable_progress_bar": False}
                kwargs = {**bar, **kwargs, **strategy(self._way)}
            elif (another := _asks_for_several(kwargs)) and self._way in BASELINES:
                pytest.skip(f"asks for {another}")
            original(trainer, *args, **kwargs)

        _set_init(construct)
        if way == "tensor":
            LightningModule.parallel_plan = _Plan()  # type: ignore[attr-defined]  # Lightning's have none

    def end(self) -> None:
        """Put back what was there."""
        _set_init(self._original)
        if self._way == "tensor":
            del LightningModule.parallel_plan  # type: ignore[attr-defined]


class _Plan:
    """As a method is called, and none: one of Lightning's tests takes each method of the class for a hook. Nor is it a
    property, which TorchScript would compile."""

    def __get__(self, module: LightningModule, _kind: type) -> Callable[[], dict[str, ColwiseParallel]]:
        return partial(by_columns, module)


def by_columns(module: LightningModule) -> dict[str, ColwiseParallel]:
    """Each linear layer of an even width divided by its columns, and its output gathered."""
    return {
        name: ColwiseParallel(output_layouts=Replicate())
        for name, part in module.named_modules()
        if isinstance(part, Linear) and part.out_features % 2 == 0
    }


def _set_init(function: Any) -> None:
    Trainer.__init__ = function  # type: ignore[method-assign]  # for the tests' duration


def _has_bar(kwargs: dict[str, Any]) -> bool:
    callbacks = kwargs.get("callbacks") or []
    return any(isinstance(one, ProgressBar) for one in (callbacks if isinstance(callbacks, list) else [callbacks]))


def _asks_for_several(kwargs: dict[str, Any]) -> str | None:
    """The strategy of its own and the devices that the test wants, if these are several: there is nothing of ours."""
    name, devices = kwargs.get("strategy", "auto"), kwargs.get("devices", "auto")
    several = devices not in ("auto", 1, "1", [0], -1) and devices is not None
    return f"strategy {name} on devices {devices}" if several and isinstance(name, str) else None


def _says_nothing(kwargs: dict[str, Any]) -> bool:
    """Whether the test leaves the strategy open, and asks for no more than one CPU."""
    plugins = kwargs.get("plugins") or []
    several = plugins if isinstance(plugins, list) else [plugins]
    return (
        kwargs.get("strategy", "auto") == "auto"
        and not isinstance(kwargs.get("strategy"), Strategy)
        and kwargs.get("accelerator", "auto") in ("auto", "cpu")
        and kwargs.get("devices", "auto") in ("auto", 1, "1")
        and kwargs.get("num_nodes", 1) == 1
        and not any(isinstance(plugin, ClusterEnvironment) for plugin in several)
    )
