"""A model whose layers lie one behind the other on several workers trains as in one process."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from scalebook.training.base.failures import WorkerLost
from scalebook.training.lightning import DDP, ModelParallel
from tests.training.lightning.async_ps.machines import by_hand, together
from tests.training.lightning.async_ps.small import SAMPLES, AtBatch, data, kill_me, loader, trainer, weights
from tests.training.lightning.model_parallel.split_model import adam, held_out, momentum
from tests.training.lightning.model_parallel.staged_model import Staged, staged, train

pytestmark = pytest.mark.long
OTHERS = ("one", "DDP", "tensor", "shard", "stages 2 x 2")


@pytest.mark.each_value
@pytest.mark.parametrize(("stages", "workers"), [(2, 2), (3, 3), (2, 4)])
@pytest.mark.parametrize(("schedule", "microbatches"), [("1f1b", None), ("gpipe", 5)])
@pytest.mark.parametrize("optimizer", [adam, momentum])
@pytest.mark.parametrize(
    "clip", [None, {"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}]
)
def test_losses_and_weights_are_one_process_s(
    stages: int, workers: int, schedule: Any, microbatches: int | None, optimizer: Any, clip: Any, tmp_path: Path
) -> None:
    """Five microbatches are not of one size."""
    one, logged = train(tmp_path, model=staged(optimizer), **(clip or {}))
    made = ModelParallel(stages=stages, microbatches=microbatches, schedule=schedule)
    split, same = train(tmp_path, made, workers, staged(optimizer), **(clip or {}))
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
    assert same == pytest.approx(logged, abs=1e-6)
    assert logged["val/samples"] == 31
    assert not torch.allclose(one, weights(staged()), atol=0.01)


def test_pipelines_average_their_gradients(tmp_path: Path) -> None:
    """With an optimizer that tells a mean from a sum."""
    one, _ = train(tmp_path, model=staged(momentum), max_epochs=10)
    split, _ = train(tmp_path, ModelParallel(stages=2), 4, staged(momentum), max_epochs=10)
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)


def test_gradients_are_accumulated_as_in_one_process(tmp_path: Path) -> None:
    """The last batch of an epoch makes an update with the one before it; the third has fewer samples than parts."""

    def accumulated(made: Any, devices: int) -> tuple[Tensor, float]:
        model = staged(momentum)
        done = trainer(tmp_path, made, devices, accumulate_grad_batches=2)
        done.fit(model, DataLoader(data(), 31), held_out())
        return weights(model), float(done.callback_metrics["train/loss"])

    one, loss = accumulated("auto", 1)
    split, same = accumulated(ModelParallel(stages=2, microbatches=4), 2)
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
    assert same == pytest.approx(loss, abs=1e-6)


class Sizes(Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        own = [one for one in pl_module.parameters() if not one.is_meta]
        assert set(trainer.optimizers[0].state) == set(own)
        counted = [sum(one.numel() for one in own), strategy.pipeline.sent_bytes, strategy.pipeline.own.foreign == {}]
        torch.save(counted, self.folder / f"sizes-{trainer.global_rank}")


def test_a_worker_has_its_stage_and_sends_what_it_must(tmp_path: Path) -> None:
    """Activations and their gradients, of 4 bytes; of [17] and of [3], of which the inputs have no gradient."""
    train(tmp_path, ModelParallel(stages=2), 2, max_epochs=3, callbacks=[Sizes(tmp_path)])
    parts = [torch.load(tmp_path / f"sizes-{rank}") for rank in range(2)]
    counts, sent, forgotten = zip(*parts, strict=True)
    assert sum(counts) == sum(one.numel() for one in staged().parameters())
    assert max(counts) == 17 * 34 + 34 + 34 * 3 + 3
    assert sent == (3 * SAMPLES * (17 + 3) * 4, 3 * SAMPLES * 17 * 4)
    assert all(forgotten)


class Telling(Staged):
    """Logs in all ways, in its steps and when an epoch ends."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        out = self(batch[0])
        epoch: Any = {"on_epoch": True, "on_step": False, "sync_dist": True}
        loss = cross_entropy(out, batch[1])
        self.log("loss", loss, True, on_step=True, on_epoch=True, sync_dist=True)
        self.log_dict({"samples": float(len(out)), "other": 2.0 * len(out)}, reduce_fx="sum", **epoch)
        self.log("least", out.detach().min(), reduce_fx="min", **epoch)
        self.log("most", out.detach().max(), reduce_fx=torch.max, batch_size=len(out), **epoch)
        self.accuracy(out, batch[1])
        self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("computed", self.accuracy.compute(), sync_dist=True)


@pytest.mark.parametrize("workers", [2, 4])
def test_what_a_step_logs_is_that_of_the_whole_batch_in_every_worker(workers: int, tmp_path: Path) -> None:
    class Seen(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            torch.save(logged, tmp_path / f"{trainer.world_size}-{trainer.global_rank}")

    settings: Any = {"max_epochs": 2, "callbacks": [Seen()], "batch": 48 * 2 // workers}
    made = ModelParallel(stages=2, microbatches=3)
    _, here = train(tmp_path, made, workers, staged(kind=Telling), **settings)
    _, there = train(tmp_path, DDP() if workers == 4 else "auto", workers // 2, staged(kind=Telling), **settings)
    assert here == pytest.approx(there, abs=1e-5)
    seen = [torch.load(tmp_path / f"{workers}-{rank}") for rank in range(workers)]
    one = torch.load(tmp_path / f"{workers // 2}-0")
    names = {"loss_epoch", "samples", "other", "least", "most", "accuracy_epoch", "computed"}
    assert names <= set(one)
    for each in seen:
        assert {name: each[name] for name in names} == pytest.approx({name: one[name] for name in names}, abs=1e-5)
    assert one["samples"] == SAMPLES


class Judged(Staged):
    """Collects what its validation sees, and ends the epoch with it, as Lightning's documentation has it."""

    def on_validation_epoch_start(self) -> None:
        self.outputs: list[Tensor] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.outputs.append(cross_entropy(self(batch[0]), batch[1]) + 0 * self(batch[0]).sum())
        self.accuracy.update(self(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        self.log("val/own", torch.stack(self.outputs).mean(), sync_dist=True)
        self.log("val/accuracy", self.accuracy.compute(), sync_dist=True)
        self.accuracy.reset()


def test_hooks_and_callbacks_of_all_workers_decide_alike(tmp_path: Path) -> None:
    def run(made: Any, devices: int) -> tuple[dict[str, float], str, int]:
        saving = ModelCheckpoint(tmp_path / str(devices), monitor="val/own", filename="{epoch}")
        stopping = EarlyStopping("val/own", patience=2, min_delta=0.05)
        done = trainer(
            tmp_path, made, devices, max_epochs=30, enable_checkpointing=True, callbacks=[saving, stopping],
        )  # fmt: skip
        model = staged(momentum, Judged)
        done.fit(model, DataLoader(data(), SAMPLES), held_out())
        return (
            {name: float(value) for name, value in done.callback_metrics.items()},
            Path(saving.best_model_path).name,
            done.current_epoch,
        )

    one, split = run("auto", 1), run(ModelParallel(stages=2), 2)
    assert split[0] == pytest.approx(one[0], abs=1e-5)
    assert split[1:] == one[1:]
    assert one[2] < 30


class Odd(Staged):
    """A stage that begins by writing into what has arrived; and what is in no stage: a parameter that is trained, and a
    buffer that the step changes."""

    largest: Tensor

    def __init__(self, optimizer: Any, frozen: bool = False) -> None:
        super().__init__(optimizer)
        self.net[2] = nn.ReLU(inplace=True)
        self.bias = nn.Parameter(torch.zeros(3))
        self.register_buffer("largest", torch.zeros(()))
        self.net[0].requires_grad_(not frozen)
        self.net[1].requires_grad_(not frozen)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.net(inputs)
        return out

    def stages(self) -> list[nn.Module]:
        return [self.net[:2], self.net[2:]]

    def loss(self, batch: Any) -> Tensor:
        out = self(batch[0]) + self.bias
        if self.training:
            self.largest = torch.maximum(self.largest, out.detach().max())
        return cross_entropy(out / (1 + self.largest), batch[1])


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_in_no_stage_is_trained_by_the_last_one_and_known_to_all(frozen: bool, tmp_path: Path) -> None:
    """With one microbatch, since the buffer relates samples to each other."""

    def run(made: Any, devices: int) -> tuple[Tensor, dict[str, float]]:
        model = staged(kind=lambda optimizer: Odd(optimizer, frozen))  # type: ignore[arg-type]
        logged = train(tmp_path, made, devices, model, max_epochs=20, check_val_every_n_epoch=5)[1]
        return torch.cat([value.flatten() for value in model.state_dict().values()]), logged

    one, logged = run("auto", 1)
    split, same = run(ModelParallel(stages=2, microbatches=1, schedule="gpipe"), 2)
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
    assert same == pytest.approx(logged, abs=1e-6)


@pytest.mark.parametrize("then", ["stages 3", *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHERS)])
def test_a_checkpoint_is_whole_and_goes_on_in_another_split(then: str, tmp_path: Path) -> None:
    made, devices = {
        "one": ("auto", 1), "DDP": (DDP(), 2), "tensor": (ModelParallel(2), 2), "shard": (ModelParallel(), 2),
        "stages 3": (ModelParallel(stages=3), 3), "stages 2 x 2": (ModelParallel(stages=2), 4),
    }[then]  # fmt: skip
    first: Any = (ModelParallel(tensor=2), 2) if "stages" in then else (ModelParallel(stages=2), 2)
    saving = ModelCheckpoint(tmp_path, filename="half", save_on_train_epoch_end=True)
    half: Any = {"max_epochs": 5, "enable_checkpointing": True, "callbacks": [saving]}
    at_half, _ = train(tmp_path, *first, **half)
    saved = torch.load(tmp_path / "half.ckpt", weights_only=True)
    model = staged()
    model.load_state_dict(saved["state_dict"])
    assert torch.equal(weights(model), at_half)
    state = saved["optimizer_states"][0]
    assert sorted(state["state"]) == state["param_groups"][0]["params"] == list(range(8))
    through, logged = train(tmp_path, max_epochs=10)
    resumed, same = train(tmp_path, made, devices, **half | {"max_epochs": 10}, ckpt_path=str(tmp_path / "half.ckpt"))
    torch.testing.assert_close(resumed, through, rtol=0, atol=1e-6)
    assert same["train/loss"] == pytest.approx(logged["train/loss"], abs=1e-6)


def test_a_death_ends_all_at_once(tmp_path: Path) -> None:
    died = tmp_path / "died"

    def die(trainer: Trainer) -> None:
        died.touch()
        kill_me(trainer)

    settings: Any = {"max_epochs": 500, "callbacks": [AtBatch(1, 20, die)]}
    with pytest.raises(WorkerLost, match=r"worker 1 .*SIGKILL"):
        trainer(tmp_path, ModelParallel(stages=3), 3, **settings).fit(staged(), loader(), held_out())
    assert time.time() - died.stat().st_mtime < 5


class Dropping(Staged):
    """Draws in its layers, and in its step what the first and the last stage must both know."""

    def __init__(self, optimizer: Any = adam) -> None:
        super().__init__(optimizer)
        self.net.insert(3, nn.Dropout(0.3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        noise = torch.randn_like(batch[0])
        out = self(batch[0] + noise)
        loss: Tensor = cross_entropy(out, batch[1]) + (out - noise[:, :3]).square().mean()
        return loss


def test_random_numbers_do_not_depend_on_the_schedule_nor_change_the_order_of_data(tmp_path: Path) -> None:
    class Order(Callback):
        def on_train_batch_start(
            self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
        ) -> None:
            with (tmp_path / f"order-{trainer.world_size}-{trainer.global_rank}").open("a") as file:
                print(batch[2].tolist(), file=file)

    settings: Any = {"max_epochs": 3, "batch": 32}
    schedules: list[tuple[Any, list[Any]]] = [("gpipe", []), ("1f1b", [Order()])]
    by = [
        train(
            tmp_path, ModelParallel(stages=2, schedule=schedule), 2, staged(kind=Dropping), **settings, callbacks=more
        )
        for schedule, more in schedules
    ]
    torch.testing.assert_close(by[0][0], by[1][0], rtol=0, atol=1e-6)
    train(tmp_path, **settings, callbacks=[Order()])
    orders = [(tmp_path / f"order-{name}").read_text() for name in ("1-0", "2-0", "2-1")]
    assert orders[0] == orders[1] == orders[2]
    assert len(set(orders[0].splitlines())) == 9


def test_a_step_s_noise_is_the_same_where_it_is_added_and_where_it_is_asked_for(tmp_path: Path) -> None:
    """The noise that is added is to be found again: the less so, the more it differs between the two ends."""

    class Denoising(Staged):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            noise = torch.randn_like(batch[0])
            loss: Tensor = (self(noise) - noise[:, :3]).square().mean()
            self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
            return loss

    _, logged = train(tmp_path, ModelParallel(stages=2), 2, staged(kind=Denoising), max_epochs=1)
    _, alone = train(tmp_path, model=staged(kind=Denoising), max_epochs=1)
    assert logged["loss"] == pytest.approx(alone["loss"], rel=0.3)
    assert logged["loss"] < 1, "of independent noise it is more than 2"


def test_prediction_and_test_of_all_samples_in_order(tmp_path: Path) -> None:
    class Asked(Staged):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            out: Tensor = self(batch[0])
            return out

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("test/loss", self.loss(batch), sync_dist=True)

    model, made = staged(kind=Asked), trainer(tmp_path, ModelParallel(stages=2), 4)
    alone = trainer(tmp_path, "auto")
    predicted: Any = (made.predict(model, held_out()), alone.predict(model, held_out()))
    torch.testing.assert_close(torch.cat(predicted[0]), torch.cat(predicted[1]))
    tested = [each.test(model, held_out(), verbose=False)[0]["test/loss"] for each in (made, alone)]
    assert tested[0] == pytest.approx(tested[1], abs=1e-6)


@pytest.mark.thorough
@pytest.mark.usefixtures("machines_key")
@pytest.mark.parametrize("stages", [2, 4])
def test_two_machines(stages: int, tmp_path: Path) -> None:
    one, logged = train(tmp_path, max_epochs=5)
    made = lambda: train(tmp_path, ModelParallel(stages=stages), 4, max_epochs=5, num_nodes=2)  # noqa: E731
    for split, same in together(by_hand(), made, tmp_path):
        torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
        assert same == pytest.approx(logged, abs=1e-6)
