"""Refuses by name what AsyncPS cannot do: settings of the Trainer before the fork, optimizers before training."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Embedding, EmbeddingBag, Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from scalebook.training.base import available_bytes
from scalebook.training.engine.rules import Settings, WorkerRange, run_limits, table_conflicts
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.async_ps.gradient_hooks import (
    CLIPPING,
    averages_in_backward,
    averages_several,
    hooks_on_gradients,
)
from scalebook.training.lightning.package import (
    BaseFinetuning,
    BatchSizeFinder,
    BitsandbytesPrecision,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LightningModule,
    ModelPruning,
    StochasticWeightAveraging,
    Trainer,
    TransformerEnginePrecision,
    WeightAveraging,
    _MockOptimizer,
    rank_zero_info,
    rank_zero_warn,
)
from scalebook.training.lightning.tied_weights import refuse_shared_memory
from scalebook.training.lightning.tuners import is_finder

WORTH_SAYING: Final = 100_000_000  # bytes
WRITING: Final[tuple[type[Callback], ...]] = (
    StochasticWeightAveraging, WeightAveraging, ModelPruning, BaseFinetuning,
)  # fmt: skip
_MEAN_IN_BACKWARD: Final = "rule: sync with host inline or process, without backup workers and without a codec"
AVERAGES: Final = frozenset(
    {"AveragedModel", "EMA", "ExponentialMovingAverage", "ModelEma", "ModelEmaV2", "ModelEmaV3", "PostHocEMA"}
)
"""Classes of moving averages: of torch, ema-pytorch, torch-ema and timm."""
SEARCHING: Final[tuple[type[Callback], ...]] = (LearningRateFinder, BatchSizeFinder)


def refuse_settings(trainer: Trainer, workers: int) -> None:
    """ValueError for settings of the Trainer; in the monitor, before anything starts."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # made by Lightning's callback connector
        name = type(callback).__name__
        if isinstance(callback, WRITING):
            raise _refused(
                f"trainer.callbacks: {name} changes parameters or param groups, which all workers share. Remove {name}"
            )
        if isinstance(callback, SEARCHING) and not is_finder(callback):
            raise _searches(name, "may search while workers train, because it is not one of Lightning's own")
    if trainer._accelerator_connector._layer_sync is not None and workers > 1:
        raise _refused(
            "trainer.sync_batchnorm: AsyncPS workers never compute a batch together. Set trainer.sync_batchnorm to "
            "false (see the strategy's buffers argument)"
        )
    plugin = trainer.precision_plugin
    if isinstance(plugin, BitsandbytesPrecision | TransformerEnginePrecision):
        raise _refused(f"trainer.precision: {type(plugin).__name__} uses its own parameter class. Use bf16-mixed")


def refuse_finders(trainer: Trainer, is_spread: bool) -> None:
    """ValueError for searches before a run over several nodes, each of which would find something else."""
    for callback in trainer.callbacks if is_spread else ():  # type: ignore[attr-defined]  # as above
        if is_finder(callback):
            raise _searches(type(callback).__name__, "would search on each node separately")


def _searches(name: str, why: str) -> ValueError:
    return _refused(f"trainer.callbacks: {name} is a finder that {why}. Remove {name}, and set the value that it finds")


def refuse_elastic(elastic: WorkerRange, on_each: int, nodes: int, settings: Settings) -> None:
    """ValueError, with key and remedy, if the number of workers cannot change while the run trains."""
    rule = settings.rule
    if contradiction := run_limits.misfit(elastic, on_each, nodes, rule.facts(), rule.settings()):
        raise contradiction


def refuse_model(module: LightningModule, settings: Settings) -> None:
    """ValueError for layers that write into their weights in every forward pass, each worker into its own copy; for
    parameters that share memory; and for settings that exclude sparse tables."""
    refuse_shared_memory(module)
    if any(isinstance(layer, Embedding | EmbeddingBag) and layer.sparse for layer in module.modules()):
        table_conflicts.refuse_beside_tables(settings)
    for name, layer in module.named_modules():
        if isinstance(layer, Embedding | EmbeddingBag) and layer.max_norm and layer.weight.requires_grad:
            raise table_conflicts.writes_by_norm(name)


def refuse_own_clipping(trainer: Trainer, settings: Settings, workers: int, are_processes: bool) -> None:
    """ValueError for a model that clips gradients itself, where the rule averages them only afterwards."""
    in_backward = are_processes and averages_in_backward(settings, workers)
    if averages_several(settings, workers) and not in_backward:
        for name in hooks_on_gradients(trainer):
            if name.endswith(f".{CLIPPING}"):
                raise _refused(
                    f"model: {name} would clip gradients before rule {settings.rule.name} averages them. Set "
                    f"trainer.gradient_clip_val, which clips the mean, or use {_MEAN_IN_BACKWARD}"
                )


def changed_gradient(hooks: Sequence[str], settings: Settings) -> ValueError:
    """The error for a gradient that one of these hooks has changed before the rule averages it."""
    return _refused(
        f"model: {' or '.join(hooks)} changed a gradient before rule {settings.rule.name} averages it. Use "
        f"{_MEAN_IN_BACKWARD}"
    )


def refuse_playing(trainer: Trainer) -> None:
    """ValueError for what a process that simulates all workers cannot do."""
    if not trainer.lightning_module.automatic_optimization:
        raise _pushes_once("model", "optimizes manually", "a model with automatic optimization")
    if trainer.accumulate_grad_batches != 1:
        why = f"is {trainer.accumulate_grad_batches}"
        instead = "1 together with a larger batch or with local: downpour"
        raise _pushes_once("trainer.accumulate_grad_batches", why, instead)
    if _accumulates_by_schedule(trainer):
        why = "GradientAccumulationScheduler changes how many batches make an update"
        raise _pushes_once("trainer.callbacks", why, "no GradientAccumulationScheduler")


def _accumulates_by_schedule(trainer: Trainer) -> bool:
    """Whether a callback sets how many batches are accumulated, epoch by epoch."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
    return any(isinstance(callback, GradientAccumulationScheduler) for callback in callbacks)


def _pushes_once(key: str, why: str, instead: str) -> ValueError:
    return ValueError(f"{key}: {why}, but virtual workers push once per batch. Use {instead}, or set host: inline.")


def warn_of_averages(trainer: Trainer, settings: Settings, workers: int) -> bool:
    """Warn if the model or a callback seems to average weights after each batch, and updates are made that worker 0 has
    no batch of. Returns whether it has warned."""
    if workers == 1 or settings.meets_after_epochs(workers) or not (name := _average_of_weights(trainer)):
        return False
    rank_zero_warn(
        f"{name} seems to be a moving average of the weights. Only worker 0's average is kept, which is updated only "
        f"after worker 0's batches, and so sees about one in {workers} of the run's updates. Raise the decay to the "
        f"power of {workers} (from 0.99 to {0.99**workers:.3g}), or use rule: sync, under which worker 0 sees every "
        "update."
    )
    return True


def _average_of_weights(trainer: Trainer) -> str:
    """The path of the first one that is found: of a known class, or a frozen copy of a part that is trained."""
    module = trainer.lightning_module
    owners: list[Any] = [module, *trainer.callbacks]  # type: ignore[attr-defined]  # as above
    held = {f"{type(owner).__name__}.{key}": value for owner in owners for key, value in vars(owner).items()}
    held |= {f"{type(module).__name__}.{key}": part for key, part in module.named_modules() if key}
    trained = [part for part in module.modules() if any(p.requires_grad for p in part.parameters())]
    for path, value in held.items():
        if type(value).__name__ in AVERAGES or (isinstance(value, Module) and _copies_one(value, trained)):
            return path
    return ""


def _copies_one(part: Module, trained: Sequence[Module]) -> bool:
    """Whether a module does not train, and has the values of one that does."""
    mine = list(part.parameters())
    if not mine or any(parameter.requires_grad or is_lazy(parameter) for parameter in mine):
        return False
    for other in trained:
        theirs = list(other.parameters()) if type(other) is type(part) else []
        if len(theirs) == len(mine) and all(map(_are_same, mine, theirs)):
            return True
    return False


def _are_same(mine: Tensor, other: Tensor) -> bool:
    if is_lazy(other) or (mine.shape, mine.dtype, mine.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(mine, other)


def announce_memory(need: worker_end.MemoryNeed, device: torch.device) -> None:
    """Print in a line how much memory a large run takes; MemoryError if the machine, or the GPU, clearly has less."""
    free = torch.cuda.mem_get_info(device)[0] if need.on_gpu else 0
    copies = f"copies of the parameters on {device} take {need.on_gpu / 1e9:.2f} GB"
    if need.on_gpu > free:
        raise MemoryError(
            f"The workers' {copies}, but only {free / 1e9:.2f} GB are free there. Use fewer workers or a smaller model."
        )
    available = available_bytes()
    parts = f"{need.shared / 1e9:.2f} GB for versions and optimizer state, {need.gradients / 1e9:.2f} GB for gradients"
    if need.snapshot:
        parts += f", {need.snapshot / 1e9:.2f} GB for a snapshot of the state"
    if need.replicas:
        parts += f", {need.replicas / 1e9:.2f} GB for each worker's own state"
    if need.on_gpu:
        parts += f"; {copies}"
    needs = (
        f"The run takes {need.total / 1e9:.2f} GB of memory for parameters of {need.parameters / 1e9:.2f} GB: {parts}"
    )
    if available is not None and need.total > available:
        raise MemoryError(
            f"{needs}. Only {available / 1e9:.2f} GB are available. Use fewer workers, an optimizer with less state, "
            "or a smaller model."
        )
    if need.total >= WORTH_SAYING:
        rank_zero_info(f"{needs}.")


def refuse_optimizers(optimizers: Sequence[Optimizer]) -> None:
    """ValueError for unsupported optimizers from `configure_optimizers`; in every worker, before training. `join`
    refuses more."""
    owner: dict[int, int] = {}
    for number, optimizer in enumerate(optimizers):
        if isinstance(optimizer, _MockOptimizer):
            raise _returned("nothing")
        if not isinstance(optimizer, Optimizer):
            raise _returned(f"a {type(optimizer).__name__}")
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if is_lazy(parameter):
                raise _refused(
                    "model: a parameter has no shape until the first forward pass, but workers must know all shapes "
                    "before training. Make a forward pass in configure_model, as DDP requires too"
                )
            if owner.setdefault(id(parameter), number) != number:
                raise _refused("model: two optimizers share a parameter. Give each parameter to one optimizer")


def _returned(result: str) -> ValueError:
    return _refused(f"model: configure_optimizers returned {result}. Return a torch.optim.Optimizer")


def _refused(problem: str) -> ValueError:
    return ValueError(f"{problem}, or use a strategy other than AsyncPS.")
