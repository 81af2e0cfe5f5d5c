"""All parts of a split model in one process, which trains the whole, and the clock of the workers that would have them.

The numbers of a split model are those of one process, so nothing need be split: the layers of the first batch are
counted, and each update takes on the clock what they would take so many workers. Shards and replicas have a batch each
for an update; here these are computed one after the other, and their gradients accumulated.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from torch import Tensor
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode
from typing_extensions import override

from scalebook.training.engine.coordination.measures import Counts, WorkerTimes
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.contradictions import ARGUMENTS
from scalebook.training.experiments.pipeline_order import Schedule
from scalebook.training.experiments.split_degrees import microbatches_of, refuse_degrees
from scalebook.training.lightning.async_ps.refusals import accumulates_by_schedule
from scalebook.training.lightning.data.workers_in_turn import in_turn
from scalebook.training.lightning.model_parallel.microbatches import StepLog, divide
from scalebook.training.lightning.model_parallel.part_measures import THE_REST
from scalebook.training.lightning.model_parallel.pipeline import OTHER_THAN_FORWARD, is_alike
from scalebook.training.lightning.model_parallel.splitting import (
    refuse_optimizers,
    refuse_sparse,
    shard_units,
    tensor_plan,
)
from scalebook.training.lightning.model_parallel.stages import (
    HOW,
    keep_own_state,
    parts_by_stage,
    refuse_batch_statistics,
    stages_of_tensors,
)
from scalebook.training.lightning.package import LightningModule, SingleDeviceStrategy, Trainer, TrainerFn
from scalebook.training.lightning.processes.strategy_launcher import repr_for_trainers
from scalebook.training.lightning.run_figures import RunFigures
from scalebook.training.lightning.tied_weights import refuse_shared_memory
from scalebook.training.pricing.layer_times import OUTSIDE, LayerTimes
from scalebook.training.pricing.layers import Layer, scaled
from scalebook.training.pricing.part_record import PartRecord, Passed, PlacedLayer, WorkerPart
from scalebook.training.pricing.profile import mean
from scalebook.training.pricing.split_clock import SplitClock
from scalebook.training.pricing.splits import Price, Split

KEY: Final = "model_parallel"
"""Of a checkpoint, what is only for another run with a clock."""
PROGRESS: Final = "epoch_loop.batch_progress"


class SimulatedParts(SingleDeviceStrategy):
    """What `ModelParallel(host="virtual")` makes; its arguments."""

    def __init__(
        self,
        tensor: int,
        shard: int | None,
        stages: int,
        microbatches: int | None,
        schedule: Schedule,
        clock: ClockSettings | None,
    ) -> None:
        super().__init__()
        if clock is None:
            raise ValueError(
                f"{ARGUMENTS}.clock: is missing, but virtual workers take the time that it declares. Write how long a "
                "gradient takes one machine, as clock: {gradient_s: 0.05}."
            )
        self._written, self._settings = (tensor, shard, stages, microbatches, schedule), clock
        self._split = split_of(0, *self._written)
        self.num_nodes = 1
        self.started_with: dict[str, str] = {}
        self.clock = SplitClock(clock, self._split)  # of the present fit
        self.figures = SplitFigures(self.clock, None)
        self.price: Price | None = None
        """Of the split, once a batch has been seen."""
        self._layers: Sequence[Layer] = ()
        self._counting: _Counting | None = None
        self._resumed_s: float | None = None
        self._before: dict[str, Any] = {}  # settings of the Trainer, changed for the fit

    @override
    def __repr__(self) -> str:
        return repr_for_trainers(self).replace(type(self).__name__, "ModelParallel")

    # --- who there would be --------------------------------------------------------------------------------------

    @property
    def parallel_devices(self) -> Sequence[Any] | None:
        """The workers' devices, as the Trainer counts them; the first one computes."""
        return self._devices

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[Any]) -> None:
        self._devices, self._root_device = devices, devices[0]

    _devices: Sequence[Any] | None = None

    @override
    def _configure_launcher(self) -> None:
        if self.num_nodes > 1:
            raise ValueError(
                f"trainer.num_nodes: is {self.num_nodes}, and one process has all virtual parts. Write 1, and all "
                "workers as trainer.devices."
            )
        self._split = split_of(len(self._devices or ()), *self._written)
        self._settings.check_split(self._split.workers)

    @property
    def data_size(self) -> int:
        """How many different batches make an update."""
        return self._split.workers // (self._split.tensor * self._split.stages)

    # --- a fit ---------------------------------------------------------------------------------------------------

    @override
    def setup_environment(self) -> None:
        super().setup_environment()
        assert self.lightning_module is not None
        self.lightning_module._device_mesh = _NoMesh()  # type: ignore[assignment]  # it refuses by name

    @override
    def setup(self, trainer: Trainer) -> None:
        assert self.lightning_module is not None
        if trainer.state.fn == TrainerFn.FITTING:
            refuse_sparse(self.lightning_module)
            refuse_shared_memory(self.lightning_module)
            if not self.lightning_module.automatic_optimization:
                raise ValueError(
                    "model: optimizes manually, and a virtual split has one price for an update. Write a model with "
                    "automatic optimization, or host: inline."
                )
            if self.data_size > 1 and accumulates_by_schedule(trainer):
                raise ValueError(
                    "trainer.callbacks: GradientAccumulationScheduler changes how many batches make an update, and a "
                    "virtual split has one price for an update. Write no such callback, or host: inline."
                )
            if self._split.tensor > 1:
                tensor_plan(self.lightning_module, self._split.tensor)
            if self._split.stages > 1:
                stages_of_tensors(self.lightning_module, parts_by_stage(self.lightning_module, self._split.stages))
            self._begin(trainer)
        super().setup(trainer)
        for optimizer in self.optimizers:
            if self._split.stages > 1:
                keep_own_state(optimizer)
            else:
                refuse_optimizers([optimizer])

    @override
    def on_train_start(self) -> None:
        super().on_train_start()
        assert self.lightning_module is not None
        if self._split.stages > 1:
            refuse_batch_statistics(self.lightning_module)

    def _begin(self, trainer: Trainer) -> None:
        self.clock = SplitClock(self._settings, self._split, int(os.environ.get("PL_GLOBAL_SEED", "0")))
        self.figures = SplitFigures(self.clock, trainer)
        self.price, self._layers = None, ()
        if self._resumed_s is not None:
            self.clock.resume(self._resumed_s)
        if self.data_size > 1:
            self._before = {"accumulate_grad_batches": trainer.accumulate_grad_batches}
            trainer.accumulate_grad_batches *= self.data_size

    @override
    def process_dataloader(self, dataloader: object) -> object:
        assert self.lightning_module is not None
        trainer = self.lightning_module.trainer
        if self.data_size == 1 or not trainer.training:
            return super().process_dataloader(dataloader)
        for name in ("limit_train_batches", "val_check_interval"):
            if name not in self._before:
                self._before[name] = getattr(trainer, name)
        dataloader = in_turn(trainer, dataloader, self.data_size)
        _of_all_workers(trainer, dataloader, self.data_size, self._before)
        return dataloader

    @override
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self._layers:
            return super().training_step(*args, **kwargs)
        assert self.lightning_module is not None
        if self._split.stages > 1:
            microbatches = len(divide(args[0], self._split.microbatches))
            if microbatches < self._split.microbatches:
                self._split = replace(self._split, microbatches=microbatches)
                self.clock.split = self._split
        self._counting = _Counting(self.lightning_module, self._split)
        try:
            output = super().training_step(*args, **kwargs)
        except BaseException:
            self._stop_counting()
            raise
        if output is None:
            self._stop_counting()
        return output

    @override
    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            return super().backward(closure_loss, *args, **kwargs)
        finally:
            self._stop_counting()

    def _stop_counting(self) -> None:
        if self._counting is None:
            return
        counting, self._counting = self._counting, None
        counting.close()
        assert self.lightning_module is not None
        batches = self.lightning_module.trainer.accumulate_grad_batches // self.data_size
        self._layers = counting.layers(mean(self._settings.gradient_s), batches)

    @override
    def optimizer_step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Make the step, and let the clock go on."""
        output = super().optimizer_step(optimizer, *args, **kwargs)
        if self._layers:
            if self.price is None:
                self.price = self.clock.set_layers(self._layers, 1, _state_bytes(self.optimizers))
                self.figures.price = self.price
            self.clock.update()
        return output

    @property
    def parts(self) -> PartRecord | None:
        """What each worker would hold and send, by its price; None before the first update."""
        if self.price is None:
            return None
        split, stages = self._split, self._split.stages
        return PartRecord(
            split.words,
            True,
            [
                PlacedLayer(
                    layer.name,
                    layer.parameter_bytes,
                    split.shard * (split.tensor if layer.is_divided else 1),
                    stage if stages > 1 else None,
                )
                for stage, layers in enumerate(self.clock.stages)
                for layer in layers
                if layer.parameter_bytes
            ],
            list(self._worker_parts(self.price)),
            passed_by(self._layers, split) + between_stages(self.clock.stages, split),
        )

    def _worker_parts(self, price: Price) -> Iterator[WorkerPart]:
        for worker, spent in enumerate(self.clock.workers):
            stage = self.clock.stage_of(worker)
            memory, whole_s = price.memory[stage], spent.whole or 1.0
            yield WorkerPart(
                memory.parameters,
                memory.gradients,
                memory.state,
                memory.activations,
                price.traffic[stage].whole,
                stage if self._split.stages > 1 else None,
                spent.bubble / whole_s,
                spent.uneven / whole_s,
                spent.link / whole_s,
            )

    @override
    def teardown(self) -> None:
        assert self.lightning_module is not None
        for name, value in self._before.items():
            setattr(self.lightning_module.trainer, name, value)
        self._before, self._resumed_s = {}, None
        super().teardown()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Save it as one of real workers, who count a batch where one for each of them is computed here."""
        checkpoint = {
            **_counted(checkpoint, lambda count: count // self.data_size),
            KEY: {"clock_s": self.clock.time_s},
        }
        super().save_checkpoint(checkpoint, *args, **kwargs)

    @override
    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        checkpoint = super().load_checkpoint(*args, **kwargs)
        self._resumed_s = checkpoint.pop(KEY, {}).get("clock_s")
        if self._resumed_s is not None:
            self.clock.resume(self._resumed_s)
        return _counted(checkpoint, lambda count: count * self.data_size)


def split_of(
    devices: int, tensor: int, shard: int | None, stages: int, microbatches: int | None, schedule: Schedule
) -> Split:
    """The split of all workers: the Trainer's devices, or, where it has one, as many as the degrees make. ConfigError
    for degrees that do not go together."""
    workers = devices if devices > 1 else tensor * (shard or 1) * stages
    if devices:
        refuse_degrees(tensor, shard, workers, stages, microbatches, schedule)
    if stages > 1:
        count = microbatches_of(stages, microbatches)
        return Split(stages=stages, data=workers // stages, microbatches=count, schedule=schedule)
    return Split(tensor, max(1, workers // tensor))


class SplitFigures(RunFigures):
    """What the workers of a split would have measured."""

    def __init__(self, clock: SplitClock, trainer: Trainer | None) -> None:
        self._clock, self._trainer = clock, trainer
        self._samples = 0
        self.price: Price | None = None

    @property
    @override
    def is_simulated(self) -> bool:
        return True

    @override
    def now(self) -> float:
        return self._clock.time_s

    @property
    def _updates(self) -> int:
        return 0 if self._trainer is None else int(self._trainer.global_step)

    @override
    def counts(self) -> Counts:
        return Counts(self._updates, self._samples)

    @override
    def living(self) -> list[int]:
        return list(range(self._clock.split.workers))

    @override
    def worker_times(self) -> list[WorkerTimes]:
        split = self._clock.split
        batches = split.workers // (split.tensor * split.stages)
        return [
            WorkerTimes(
                compute=seconds.computing,
                wait=seconds.bubble + seconds.uneven,
                communicate=seconds.link,
                data=0.0,
                updates=self._updates,
                samples=self._samples // batches,
                pushed_bytes=self._sent(self._clock.stage_of(worker)),
                pulled_bytes=self._sent(self._clock.stage_of(worker)),  # as many, on average
                memory_bytes=0 if self.price is None else round(self.price.memory[self._clock.stage_of(worker)].whole),
            )
            for worker, seconds in enumerate(self._clock.workers)
        ]

    def _sent(self, stage: int) -> int:
        return 0 if self.price is None else round(self._updates * self.price.traffic[stage].whole)

    @override
    def add_samples(self, samples: int) -> None:
        self._samples += samples


class _NoMesh:
    """In place of a device mesh, for a model that would split itself."""

    def __getitem__(self, name: object) -> Any:
        raise ValueError(
            "model: configure_model splits it by self.device_mesh, and on a virtual clock that has no price. Say the "
            "split by parallel_plan() and shard_units(), or write host: inline."
        )


# --- layers ----------------------------------------------------------------------------------------------------------


class _Counting:
    """Of one batch: the layers' operations and bytes."""

    def __init__(self, module: LightningModule, split: Split) -> None:
        self._module, self._split = module, split
        self._operations = FlopCounterMode(display=False)
        self._times = LayerTimes(module, lambda: float(self._operations.get_total_flops()))
        self._times.begin_step()
        self._called: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._hook = module.register_forward_pre_hook(self._note_call, with_kwargs=True)
        self._operations.__enter__()  # type: ignore[no-untyped-call]  # torch's

    def _note_call(self, _module: Any, args: Any, kwargs: Any) -> None:
        if self._called is None:
            self._called = tree_map_only(Tensor, Tensor.detach, (args, kwargs))

    def close(self) -> None:
        """After the backward pass."""
        self._times.end_step()
        self._operations.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's
        self._hook.remove()

    def layers(self, gradient_s: float, batches: int) -> list[Layer]:
        """By so many batches for one gradient, of `gradient_s` seconds on one machine, which layers share by their
        operations. ValueError, with key and remedy, for a plan without a price."""
        whole, module, split = float(self._operations.get_total_flops()), self._module, self._split
        weights = float(sum(parameter.nbytes for parameter in module.parameters()))
        counted = self._times.layers(whole, weights, joins=False)
        if whole:
            counted = list(scaled(counted, gradient_s / whole))
        else:
            counted[-1] = replace(counted[-1], forward_s=gradient_s)
        styles = tensor_plan(module, split.tensor) if split.tensor > 1 else {}
        counted = [
            replace(layer, whole_bytes=_bias_bytes(module, layer.name, styles)) for layer in divided(counted, styles)
        ]
        if split.stages > 1:
            counted = self._in_stages(counted)
        units = shard_units(module) if split.shard > 1 else {}
        return [
            replace(
                layer,
                output_bytes=batches * layer.output_bytes,
                input_bytes=batches * layer.input_bytes,
                returned_bytes=None if layer.returned_bytes is None else batches * layer.returned_bytes,
                unit=_unit(layer.name, units) if split.shard > 1 else None,
            )
            for layer in counted
        ]

    def _in_stages(self, layers: Sequence[Layer]) -> list[Layer]:
        """Layers stage by stage, which alone may begin with a layer; the last one of each hands on its output."""
        if self._called is None:
            raise ValueError(
                f"{ARGUMENTS}.stages: training_step of {type(self._module).__name__} does not call self(...). {HOW}."
            )
        by_stage = parts_by_stage(self._module, self._split.stages)
        crossing = crossing_bytes(self._module, by_stage, *self._called)
        last = self._split.stages - 1
        stage_of = {
            name: stage
            for name, module in self._module.named_modules()
            for stage, parts in enumerate(by_stage)
            if any(module is each for part in parts for each in part.modules())
        }
        ordered = []
        for stage in range(last + 1):
            own = [layer for layer in layers if stage_of.get(layer.name, last) == stage]
            own = own or [Layer(f"stage {stage}", 0.0, 0.0, 0.0, 0.0)]  # without parameters or operations
            own = [replace(layer, cut=place == 0) for place, layer in enumerate(own)]
            if stage < last:
                sent, returned = crossing[stage]
                own[-1] = replace(own[-1], output_bytes=sent, returned_bytes=returned)
            ordered += own
        return ordered


def crossing_bytes(
    module: LightningModule, by_stage: Sequence[Sequence[Module]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[float, float]]:
    """Bytes that each stage but the last hands on, and of their gradients, for these arguments of `self(...)`.
    ValueError if the parts in turn give something else than the module's `forward`."""
    crossing = []
    modes = {each: each.training for part in (module, *chain.from_iterable(by_stage)) for each in part.modules()}
    for each in modes:
        each.training = False  # no statistics are updated, and nothing is drawn
    value: Any = None
    for stage, parts in enumerate(by_stage):
        for place, part in enumerate(parts):
            value = part(*args, **kwargs) if stage == place == 0 else part(value)
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        trained = [each for each in tensors if each.requires_grad]
        crossing.append((float(sum(each.nbytes for each in tensors)), float(sum(each.nbytes for each in trained))))
    with StepLog(module).taking(1.0, drops=True):
        written = value if type(module).forward is LightningModule.forward else module(*args, **kwargs)
    for each, mode in modes.items():
        each.training = mode
    if not is_alike(*tree_map_only(Tensor, Tensor.detach, (written, value))):
        raise ValueError(OTHER_THAN_FORWARD.format(type(module).__name__))
    return crossing[:-1]


def _bias_bytes(module: LightningModule, layer: str, styles: Mapping[str, ParallelStyle]) -> float:
    """Of a bias that is added once rows are summed, so that each worker has all of it."""
    bias = getattr(module.get_submodule(layer), "bias", None) if layer in styles else None
    return float(bias.nbytes) if isinstance(bias, Tensor) and isinstance(styles[layer], RowwiseParallel) else 0.0


def _unit(layer: str, units: Mapping[str, Any]) -> str:
    """The innermost unit that a layer is in; "" for none."""
    return max((unit for unit in units if unit and f"{layer}.".startswith(f"{unit}.")), key=len, default="")


def divided(layers: Sequence[Layer], styles: Mapping[str, ParallelStyle]) -> list[Layer]:
    """Layers in turn of their calls, with what a plan makes workers sum. Between columns whose outputs stay divided and
    rows that take them so, all is divided. ValueError, with key and remedy, for a style without a price."""
    planned, open_since = [], ""
    for layer in layers:
        style = styles.get(layer.name)
        sums: tuple[float, float] | None = None
        if style is None:
            sums = (0.0, 0.0) if open_since and layer.name != OUTSIDE else None
        else:
            columns, whole_in, whole_out = _layouts(layer.name, style)
            if columns:
                sums = (0.5 if whole_out else 0.0, 1.0)
                open_since = open_since if whole_out else open_since or layer.name
            else:
                sums = (1.0, 0.5 if whole_in else 0.0)
                open_since = open_since if whole_in else ""
        planned.append(replace(layer, kind="whole", sums=sums))
    if open_since:
        raise _unpriced(open_since, "its outputs stay divided, and no layer by rows takes them so")
    return planned


def _layouts(name: str, style: ParallelStyle) -> tuple[bool, bool, bool]:
    """Whether a layer is split by columns, takes whole inputs, and gives whole outputs."""
    if type(style) not in (ColwiseParallel, RowwiseParallel):
        raise _unpriced(name, f"{type(style).__name__} is neither ColwiseParallel nor RowwiseParallel")
    layouts = [*style.input_layouts, *style.output_layouts]  # type: ignore[attr-defined]  # of both
    if len(layouts) != 2 or any(each not in (Replicate(), Shard(-1)) for each in layouts):
        raise _unpriced(name, "its layouts are neither Replicate() nor Shard(-1)")
    columns = isinstance(style, ColwiseParallel)
    whole_in, whole_out = (each == Replicate() for each in layouts)
    if (columns and not whole_in) or (not columns and not whole_out):
        raise _unpriced(name, "columns take whole inputs, and rows give whole outputs")
    return columns, whole_in, whole_out


def _unpriced(name: str, why: str) -> ValueError:
    return ValueError(
        f"model: parallel_plan of {name} has no price on a virtual clock: {why}. Change it, or write host: inline."
    )


def passed_by(layers: Sequence[Layer], split: Split) -> list[Passed]:
    """What a worker passes in an update, of layers that a plan divides and of units that shards gather."""
    rows: list[Passed] = []
    for layer in layers if split.tensor > 1 else ():
        for share, nbytes in zip(layer.sums or (), (layer.output_bytes, layer.input_bytes), strict=False):
            if share and nbytes:
                name = "all-gather" if share == 0.5 else "all-reduce"
                sent = share * 2 * (split.tensor - 1) / split.tensor * nbytes
                rows.append(Passed(name, layer.name, 1, nbytes, sent))
    by_unit: dict[str, float] = {}
    for layer in layers if split.shard > 1 else ():
        by_unit[layer.unit or THE_REST] = by_unit.get(layer.unit or THE_REST, 0.0) + layer.held(split.tensor)
    for unit, nbytes in by_unit.items():
        times, sent = 1 if unit == THE_REST else 2, (split.shard - 1) / split.shard * nbytes
        if nbytes:
            rows.append(Passed("all-gather", unit, times, times * nbytes, times * sent))
            rows.append(Passed("reduce-scatter", unit, 1, nbytes, sent))
    return _summed(rows)


def between_stages(stages: Sequence[Sequence[Layer]], split: Split) -> list[Passed]:
    """What stages send each other in an update, and replicas of each."""
    rows = []
    for stage, layers in enumerate(stages if split.stages > 1 else ()):
        if stage + 1 < split.stages:
            nbytes = layers[-1].output_bytes + layers[-1].returned
            rows.append(Passed("send", f"stage {stage} and {stage + 1}", 2 * split.microbatches, nbytes, nbytes))
        if split.data > 1:
            held = sum(layer.parameter_bytes for layer in layers)
            rows.append(Passed("all-reduce", f"stage {stage}", 1, held, 2 * (split.data - 1) / split.data * held))
    return rows


def _summed(rows: Sequence[Passed]) -> list[Passed]:
    """One row for each collective and layer."""
    by_key: dict[tuple[str, str], Passed] = {}
    for row in rows:
        key = row.collective, row.layer
        before = by_key.get(key, Passed(*key, 0, 0.0, 0.0))
        by_key[key] = Passed(*key, before.calls + row.calls, before.nbytes + row.nbytes, before.sent + row.sent)
    return list(by_key.values())


def _state_bytes(optimizers: Sequence[Optimizer]) -> float:
    """Bytes of the optimizers' state."""
    states = [values for optimizer in optimizers for values in optimizer.state.values()]
    return float(sum(value.nbytes for values in states for value in values.values() if isinstance(value, Tensor)))


# --- batches of several workers --------------------------------------------------------------------------------------


def _of_all_workers(trainer: Trainer, loader: DataLoader[Any], workers: int, written: Mapping[str, Any]) -> None:
    """Let limits count batches of all workers, where a person has written those of each."""
    whole, limit = len(loader) // workers, written["limit_train_batches"]
    each = int(whole * limit) if isinstance(limit, float) else min(whole, limit)
    trainer.limit_train_batches = workers * each
    every = written["val_check_interval"]
    if every is not None and every != 1.0:
        each_s = max(1, int(each * every)) if isinstance(every, float) else every
        trainer.val_check_interval = workers * each_s


def _counted(checkpoint: dict[str, Any], change: Callable[[int], int]) -> dict[str, Any]:
    """A checkpoint with other counts of batches."""
    loops = checkpoint.get("loops")
    if loops is None:
        return checkpoint
    fit = loops["fit_loop"]
    progress = {
        name: {key: change(count) for key, count in value.items()} if isinstance(value, dict) else value
        for name, value in fit[PROGRESS].items()
    }
    return {**checkpoint, "loops": {**loops, "fit_loop": {**fit, PROGRESS: progress}}}
