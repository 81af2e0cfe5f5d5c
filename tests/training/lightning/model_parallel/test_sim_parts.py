"""Virtual parts: one process's numbers to the bit, and the clock of the workers that would have the parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from scalebook.training.lightning import ModelParallel
from scalebook.training.lightning.model_parallel.sim_parts import SimulatedParts, divided
from scalebook.training.pricing.layers import Layer
from tests.training.lightning.async_ps.small import SAMPLES, data, trainer, weights
from tests.training.lightning.model_parallel.split_model import Pair, held_out, pair
from tests.training.lightning.model_parallel.staged_model import Staged, staged

CLOCK = {"gradient_s": 0.05, "link": {"latency_s": 1e-4, "bandwidth": 1e7}}
BATCH = 8


class Dropping(Pair):
    """With random numbers in each forward pass."""

    def loss(self, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(nn.functional.dropout(self.net(batch[0]), 0.2), batch[1])


class Losses(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if "loss" in outputs:
            self.seen.append(float(outputs["loss"].detach()) * trainer.accumulate_grad_batches)


def virtual(**arguments: Any) -> Any:
    return ModelParallel(host="virtual", clock=arguments.pop("clock", CLOCK), **arguments)


def fit(
    folder: Path, strategy: Any, devices: int = 1, model: LightningModule | None = None, **settings: Any
) -> tuple[Tensor, list[float], Any]:
    """All weights after a fit, the losses of its batches, and the Trainer."""
    ckpt_path, loader = settings.pop("ckpt_path", None), settings.pop("loader", None)
    model, losses = model or pair(kind=Dropping), Losses()
    settings = {"max_epochs": 2, "num_sanity_val_steps": 0, **settings}
    made = trainer(folder, strategy, devices, **settings)
    made.callbacks.append(losses)  # type: ignore[attr-defined]  # made by Lightning's callback connector
    torch.manual_seed(5)
    made.fit(model, loader or DataLoader(data(), BATCH, shuffle=True), held_out(), ckpt_path=ckpt_path)
    return weights(model), losses.seen, made


def test_losses_and_weights_are_one_process_s_to_the_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"gradient_clip_val": 0.1, "accumulate_grad_batches": 2}
    one, losses, plain = fit(tmp_path, "auto", **settings)
    for strategy, devices in ((virtual(tensor=2), 2), (virtual(tensor=17, clock={"gradient_s": 1.0}), 1)):
        same, found, made = fit(tmp_path, strategy, devices, **settings)
        assert torch.equal(same, one)
        assert found == losses
        assert made.global_step == plain.global_step == 2 * SAMPLES // BATCH // 2
        assert made.callback_metrics["val/loss"] == plain.callback_metrics["val/loss"]
        clock = made.strategy.clock
        assert clock.split.workers == max(devices, strategy._split.tensor)
        assert clock.time_s == pytest.approx(made.global_step * made.strategy.price.seconds)


def test_virtual_shards_have_the_batches_of_real_ones(tmp_path: Path) -> None:
    """Weights after an epoch within rounding, with limits, clipping and validations as a real worker counts them."""
    settings: dict[str, Any] = {
        "max_epochs": 1, "gradient_clip_val": 0.1, "limit_train_batches": 5, "val_check_interval": 2,
    }  # fmt: skip
    real, _, _ = fit(tmp_path, ModelParallel(shard=2), 2, pair(), **settings)
    same, losses, made = fit(tmp_path, virtual(), 2, pair(), **settings)
    torch.testing.assert_close(same, real, rtol=0, atol=1e-6)
    assert (len(losses), made.global_step) == (10, 5)
    assert (made.accumulate_grad_batches, made.limit_train_batches, made.val_check_interval) == (1, 5, 2), "as before"
    other, _, made = fit(tmp_path, virtual(shard=2), 1, pair(), **{**settings, "limit_train_batches": 0.9})
    torch.testing.assert_close(other, real, rtol=0, atol=1e-6)
    assert made.limit_train_batches == 0.9


def test_layers_say_what_a_plan_makes_workers_send(tmp_path: Path) -> None:
    strategy = virtual(tensor=2, shard=2)
    fit(tmp_path, strategy, 1, pair(), max_steps=1)
    traffic, memory = strategy.price.traffic[0], strategy.price.memory[0]
    columns, rows = 4 * BATCH * 17, 4 * BATCH * 3
    assert traffic.tensor == columns + rows, "2 (2 - 1) / 2 of the gradients of the pair's inputs, and of its outputs"
    whole = 4 * (5 * 17 + 17 + 17 + 17 + (17 * 34 + 34 + 34 * 3) / 2 + 3)  # a bias after rows is whole
    assert traffic.shard == pytest.approx(1.5 * whole)
    assert memory.gradients == pytest.approx(whole / 2)
    assert memory.state == pytest.approx(2 * memory.gradients, rel=0.05), "Adam; with its counts of steps"


def test_the_clock_goes_on_where_a_checkpoint_was_written(tmp_path: Path) -> None:
    first = virtual(shard=2)
    _, _, made = fit(tmp_path, first, 1, pair())
    made.save_checkpoint(tmp_path / "two.ckpt")
    written = torch.load(tmp_path / "two.ckpt", weights_only=True)
    progress = written["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]
    assert progress["completed"] == 2 * SAMPLES // BATCH // 2, "as a real worker counts"
    again = virtual(shard=2)
    fit(tmp_path, again, 1, pair(), max_epochs=3, ckpt_path=tmp_path / "two.ckpt")
    assert again.clock.time_s == pytest.approx(1.5 * first.clock.time_s)
    whole, _, _ = fit(tmp_path, virtual(shard=2), 1, pair(), max_epochs=3)
    resumed, _, _ = fit(tmp_path, ModelParallel(shard=2), 2, pair(), max_epochs=3, ckpt_path=tmp_path / "two.ckpt")
    torch.testing.assert_close(resumed, whole, rtol=0, atol=1e-6)


class Passing(Staged):
    """Notes what both workers of a pipeline have sent."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if isinstance(self.trainer.strategy, ModelParallel):
            assert self.trainer.strategy.pipeline is not None
            self.sent.fill_(self.trainer.strategy.pipeline.sent_bytes)
            torch.distributed.all_reduce(self.sent)

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.register_buffer("sent", torch.zeros(1))

    sent: Tensor


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_virtual_stages_pass_what_real_ones_do(schedule: Any, tmp_path: Path) -> None:
    arguments = {"stages": 2, "microbatches": 4, "schedule": schedule}
    strategy, updates = virtual(**arguments), 5
    settings: dict[str, Any] = {"max_steps": updates, "max_epochs": 1}
    one, losses, _ = fit(tmp_path, "auto", 1, staged(kind=Passing), **settings)
    same, seen, _ = fit(tmp_path, strategy, 1, staged(kind=Passing), **settings)
    assert torch.equal(same, one)
    assert seen == losses
    split = strategy.clock.split
    assert (split.workers, split.microbatches, split.schedule, split.data) == (2, 4, schedule, 1)
    model = staged(kind=Passing)
    real, _, _ = fit(tmp_path, ModelParallel(**arguments), 2, model, **settings)
    torch.testing.assert_close(real, one, rtol=0, atol=1e-6)
    first, last = strategy.price.traffic
    assert isinstance(model, Passing)
    assert updates * (first.stages + last.stages) == model.sent.item()
    assert (first.stages, last.stages) == (4 * BATCH * (17 + 3), 4 * BATCH * 17), "inputs have no gradient"
    assert sum(memory.parameters for memory in strategy.price.memory) == 4 * sum(p.numel() for p in model.parameters())
    assert strategy.price.idle > 1 / 5, "(K - 1) / (m + K - 1), and more for stages that are not equal"
    replicas = virtual(stages=2)
    fit(tmp_path, replicas, 4, staged(), max_steps=2)
    assert (replicas.clock.split.data, replicas.clock.split.microbatches) == (2, 8)
    assert replicas.price.traffic[0].data > 0


PLANS: list[tuple[dict[str, ParallelStyle], str]] = [
    ({"net.3": ColwiseParallel()}, "net.3 has no price.*outputs stay divided"),
    ({"net.1": SequenceParallel()}, "net.1 has no price.*SequenceParallel is neither"),
    ({"net.5": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Replicate())}, "net.5 has no"),
    ({"net.3": ColwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
      "net.5": RowwiseParallel(input_layouts=Replicate(), output_layouts=torch.distributed.tensor.Shard(0))},
     "net.5 has no price.*layouts"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "problem"), PLANS)
def test_a_plan_without_a_price_is_refused_by_name(
    plan: dict[str, ParallelStyle], problem: str, tmp_path: Path
) -> None:
    class Planned(Pair):
        def parallel_plan(self) -> dict[str, ParallelStyle]:
            return plan

    with pytest.raises(ValueError, match=f"model: parallel_plan of {problem}"):
        fit(tmp_path, virtual(tensor=2, clock={"gradient_s": 1.0}), 1, pair(kind=Planned), max_steps=1)


def test_layers_that_gather_are_told_from_pairs() -> None:
    layers = [Layer(name, 1.0, 2.0, 8.0, 4.0, input_bytes=16.0) for name in "abcd"]
    gathered = {"a": ColwiseParallel(output_layouts=Replicate()), "c": RowwiseParallel(input_layouts=Replicate())}
    assert [layer.sums for layer in divided(layers, gathered)] == [(0.5, 1.0), None, (1.0, 0.5), None]
    paired = {"a": ColwiseParallel(), "b": ColwiseParallel(), "d": RowwiseParallel()}
    assert [layer.sums for layer in divided(layers, paired)] == [(0.0, 1.0), (0.0, 1.0), (0.0, 0.0), (1.0, 0.0)]


class SplitsItself(Pair):
    def configure_model(self) -> None:
        assert self.device_mesh is not None
        self.device_mesh["tensor_parallel"]


class Manual(Pair):
    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.automatic_optimization = False


class Inside(Staged):
    def loss(self, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(self.forward(batch[0]), batch[1])


class Other(Staged):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * 2


def sequence_of_batches() -> DataLoader[Any]:
    return DataLoader(data(), batch_sampler=type("Own", (BatchSampler,), {})(RandomSampler(range(SAMPLES)), 8, False))


@pytest.mark.parametrize(
    ("arguments", "settings", "problem"),
    [
        ({"tensor": 2, "clock": None}, {}, r"init_args.clock: is missing.*gradient_s: 0.05"),
        ({"tensor": 3}, {"devices": 4}, r"init_args.tensor: tensor 3 is not the 4 workers"),
        ({"tensor": 2, "clock": {**CLOCK, "deaths": [{"worker": 0, "at_s": 1}]}}, {}, "clock.deaths: has no effect"),
        ({"tensor": 2, "clock": {"gradient_s": 0}}, {}, "clock.gradient_s: is 0"),
        ({"tensor": 2, "clock": {"gradient_s": 1, "stragglers": {2: 2.0}}}, {}, "worker 2 does not exist"),
        ({"tensor": 2}, {"num_nodes": 2}, "trainer.num_nodes: is 2, and one process"),
        ({"tensor": 2}, {"model": SplitsItself}, "model: configure_model splits it by self.device_mesh"),
        ({"tensor": 2}, {"model": Manual}, "model: optimizes manually"),
        ({"stages": 7}, {}, r"init_args.stages: Pair has 6 parts in its stages\(\), fewer than 7"),
        ({"stages": 2}, {"model": Inside}, "training_step of Inside does not call self"),
        ({"stages": 2}, {"model": Other}, "stages.. in turn give something else than forward of Other"),
        ({"stages": 2, "tensor": 2}, {}, "init_args.stages: a stage's worker has whole layers"),
        ({"stages": 2}, {"devices": 3}, "init_args.stages: stages 2 do not divide the 3 workers"),
        ({"shard": 2}, {"callbacks": [GradientAccumulationScheduler({1: 2})]}, "callbacks: GradientAccumulationSched"),
        ({"shard": 2}, {"loader": sequence_of_batches}, "data: virtual parts take the batches of 2 workers"),
    ],
)  # fmt: skip
def test_what_cannot_be_virtual_is_refused_by_key(
    arguments: dict[str, Any], settings: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    model = pair(kind=settings.pop("model", Pair))
    loader = settings.pop("loader", None)
    with pytest.raises(ValueError, match=problem):
        fit(tmp_path, virtual(**arguments), settings.pop("devices", 1), model, loader=loader and loader(), **settings)


def test_host_and_clock_go_together() -> None:
    with pytest.raises(ValueError, match=r"init_args.clock: .* host: virtual, or remove clock"):
        ModelParallel(tensor=2, clock=CLOCK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"init_args.host: 'process' is unknown. Use inline or virtual"):
        ModelParallel(tensor=2, host="process")  # type: ignore[arg-type]
    assert isinstance(virtual(tensor=2), SimulatedParts)
    assert repr(virtual(tensor=2)).startswith("<ModelParallel for Trainers of ")
