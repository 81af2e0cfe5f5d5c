"""The gradient noise scale during a run: how large a batch is still worth its samples (McCandlish et al. 2018)."""

import copy
import math
from collections import OrderedDict, deque
from collections.abc import Sequence, Sized
from time import perf_counter
from types import MethodType
from typing import Any, Final, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.seed import isolate_rng
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.callbacks.batches import batch_size, loss_of
from scalebook.training.callbacks.measure import Measure
from scalebook.training.lightning import ModelParallel, figures_of
from scalebook.training.tracking import RunLogger, names

COST: Final = 0.03
"""The largest share of the steps' time for probes."""

FIRST_STEPS: Final = 5
MOST_STEPS: Final = 1000
WINDOW: Final = 100
"""The window of the moving averages, probes: the noise scale grows while a model learns."""

LEAST_PROBES: Final = 8
Z: Final = 1.96  # of a normal distribution, 95 %


class Probe(NamedTuple):
    """The estimates from one batch: `product` of |G|^2 - tr(Sigma) / N without bias, `spread` of tr(Sigma)."""

    product: float
    spread: float


class NoiseEstimate(NamedTuple):
    """Noise scale in samples, with its 95 % interval; `high` is infinite if the data do not bound it."""

    scale: float
    low: float
    high: float


class NoiseScale(Callback):
    """Measures B_simple = tr(Sigma) / |G|^2, which is near the critical batch size (arXiv 1812.06162, section 2.2).

    At a batch of B_simple a run needs about twice the fewest possible updates and twice the fewest possible samples
    (equation 2.11): much smaller batches waste updates, much larger ones waste samples. That is `noise/scale`;
    `noise/batch_suggested` is the power of two nearest to it, at most the training set. It is a batch of all workers
    together.

    Now and then the gradients of the two halves of a batch are computed at the parameters of that moment, on a copy of
    the module, with random numbers of their own: training is the same to the last bit, under every strategy. Of the
    estimators of appendix A.1 (small batch: a half, big: both) two moving averages are kept apart, and divided. They
    are unbiased for the present parameters, unlike those from successive steps, where the update in between carries the
    first gradient's noise into the second (a bias of lr tr(H Sigma) / B in |G|^2, which can exceed it). What remains:
    the quotient of two means (of order 1 / probes), batch normalisation over half a batch, and parameters that move
    while the averages do. G is the gradient over the N training samples, drawn without replacement.

    Probes are as frequent as 3 % of the training time allows. Under DDP all workers probe together and average; with a
    parameter server worker 0 does. Refused: manual optimization. The loss must be a mean over the samples.
    """

    def __init__(self, measure: Measure, every: int | None = None) -> None:
        """`every`: steps between probes, instead of as often as the cost allows."""
        self.measure, self.every = measure, every
        self.probes: deque[Probe] = deque(maxlen=WINDOW)
        self._left = every or FIRST_STEPS
        self._steps, self._steps_s, self._begun = 0, 0.0, 0.0

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(trainer.strategy, ModelParallel):
            raise ConfigError("noise_scale", "needs a whole copy of the model, but the model is split", "Use false.")
        if not pl_module.automatic_optimization:
            raise ConfigError(
                "noise_scale",
                f"cannot be combined with {type(pl_module).__name__}, which steps its optimizers itself",
                "Set noise_scale: false.",
            )

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._left -= 1
        if self._left < 0 and (trainer.global_rank == 0 or figures_of(trainer) is None):
            begun = perf_counter()
            measured = probe(trainer, pl_module, batch, batch_idx)
            self._take(trainer, measured, perf_counter() - begun)
        self._begun = perf_counter()

    @override
    def on_train_batch_end(self, *args: Any) -> None:
        self._steps += 1
        self._steps_s += perf_counter() - self._begun

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Worker 0 records the result's explanation in a tag of the run."""
        noise = estimate(self.probes, training_samples(trainer))
        if not trainer.is_global_zero or noise is None:
            return
        text = explained(noise, training_samples(trainer))
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.experiment.set_tag(logger.run_id, names.TAG_NOISE, text)

    def _take(self, trainer: Trainer, measured: Probe, probe_s: float) -> None:
        """Average over the workers of DDP, who all come here at the same step; then plan the next probe."""
        averaged = torch.tensor(
            [*measured, probe_s, self._steps_s / max(1, self._steps)],
            dtype=torch.float64,
            device=trainer.strategy.root_device,
        )
        if figures_of(trainer) is None:  # there worker 0 alone comes here
            averaged = trainer.strategy.reduce(averaged, reduce_op="mean")
        product, spread, probe_s, step_s = averaged.tolist()
        steps = probe_s / max(1e-9, COST * step_s)
        self._left = self.every or (max(1, min(MOST_STEPS, math.ceil(steps))) if math.isfinite(steps) else MOST_STEPS)
        self._left -= 1
        self._steps, self._steps_s = 0, 0.0
        if math.isfinite(product + spread):
            self.probes.append(Probe(product, spread))
            self._record(trainer)

    def _record(self, trainer: Trainer) -> None:
        samples = training_samples(trainer)
        noise = estimate(self.probes, samples)
        if noise is None or not trainer.is_global_zero:
            return
        points = {
            names.NOISE_SCALE: noise.scale,
            names.NOISE_LOW: noise.low,
            names.NOISE_HIGH: noise.high,
            names.NOISE_BATCH: float(suggested(noise.scale, samples)),
        }
        points = {metric: value for metric, value in points.items() if math.isfinite(value)}
        self.measure.latest.update(points)
        for logger in trainer.loggers:
            logger.log_metrics(points, step=self.measure.axes().updates)


def probe(trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> Probe:
    """Estimates from the gradients of the two halves of `batch` at the present parameters; NaN if there are no
    gradients.

    The copy shares the parameters, whose `.grad` is left alone; it has buffers and attributes of its own, and logs
    nothing. A batch of one sample has no halves.
    """
    half = batch_size(batch) // 2
    if half == 0:
        return Probe(math.nan, math.nan)
    parameters = [p for p in module.parameters() if p.requires_grad]
    methods = [
        member for member in vars(module).values() if isinstance(member, MethodType)
    ]  # that a strategy has put there
    shared: dict[int, Any] = {id(object_): object_ for object_ in (*module.parameters(), *methods, trainer)}
    gradients = []
    with isolate_rng(include_cuda=trainer.strategy.root_device.type == "cuda"):
        twin = copy.deepcopy(module, shared)
        twin.log = twin.log_dict = _silent  # type: ignore[method-assign]  # on the copy only
        for part in (slice(0, half), slice(half, 2 * half)):
            arguments = trainer.fit_loop.epoch_loop._build_kwargs(OrderedDict(), _part(batch, part, half), batch_idx)
            with torch.enable_grad(), trainer.precision_plugin.train_step_context():
                loss = loss_of(twin.training_step(*arguments.values()))
            if loss is None:
                return Probe(math.nan, math.nan)
            gradients.append(torch.autograd.grad(loss, parameters, allow_unused=True))
    pairs = [(a, b) for a, b in zip(*gradients, strict=True) if a is not None and b is not None]
    product = sum((torch.sum(a * b).double() for a, b in pairs), torch.zeros(()).double())
    spread = sum((torch.sum((a - b).square()).double() for a, b in pairs), torch.zeros(()).double())
    return Probe(float(product), float(spread) * half / 2)


def estimate(probes: Sequence[Probe], samples: int | None) -> NoiseEstimate | None:
    """The noise scale from the means of both estimators; None for fewer than 8 probes, or while |G|^2 cannot be told
    from 0.

    `samples`: size N of the training set, None if unknown. 1 / B_simple = product / spread + 1 / N. The interval is
    that of the quotient of two correlated means (delta method).
    """
    count = len(probes)
    if count < LEAST_PROBES:
        return None
    table = torch.tensor(list(probes), dtype=torch.float64)
    product, spread = table.mean(0).tolist()
    if spread <= 0:
        return None
    (product_var, both), (_, spread_var) = (table.T.cov() / count).tolist()
    quotient, one_of_all = product / spread, 1 / samples if samples else 0.0
    variance = (product_var + quotient**2 * spread_var - 2 * quotient * both) / spread**2
    half = Z * math.sqrt(max(0.0, variance))
    least, most = quotient - half + one_of_all, quotient + half + one_of_all
    if quotient + one_of_all <= 0:
        return None
    return NoiseEstimate(1 / (quotient + one_of_all), 1 / most, 1 / least if least > 0 else math.inf)


def suggested(scale: float, samples: int | None) -> int:
    """The power of two nearest to `scale`; none larger than the training set."""
    power = max(0, round(math.log2(scale)))
    return int(2 ** min(power, math.floor(math.log2(samples)) if samples else power))


def explained(noise: NoiseEstimate, samples: int | None) -> str:
    """One sentence for people: the batch, the figure behind it, and what it means."""
    high = f"{noise.high:,.0f}" if math.isfinite(noise.high) else "?"
    return (
        f"batch {suggested(noise.scale, samples)} over all workers (noise scale {noise.scale:,.0f} samples, "
        f"{noise.low:,.0f} to {high}). With this batch, a run needs about twice the minimum number of updates and "
        "twice the minimum number of samples"
    )


def training_samples(trainer: Trainer) -> int | None:
    """The size of the training set; None if it is unknown, or its items are whole batches."""
    loader: Any = trainer.train_dataloader
    dataset = getattr(loader, "dataset", None)
    if not isinstance(dataset, Sized) or getattr(loader, "batch_size", 1) is None:
        return None
    return len(dataset)


def _part(batch: Any, part: slice, half: int) -> Any:
    """The same rows of every tensor that has one for each sample."""
    sizes = (2 * half, 2 * half + 1)
    return apply_to_collection(
        batch, Tensor, lambda tensor: tensor[part] if tensor.ndim and tensor.shape[0] in sizes else tensor
    )


def _silent(*_args: Any, **_kwargs: Any) -> None:
    """A model's `log` during a probe: does nothing."""
