"""One model over several workers trains as in one process, is saved whole, and ends together."""

import os
import time
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import (
    Callback,
    EMAWeightAveraging,
    ModelCheckpoint,
    ModelPruning,
    StochasticWeightAveraging,
)
from lightning.pytorch.plugins import TorchCheckpointIO
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from scalebook.training.base.failures import WorkerLost
from scalebook.training.lightning import DDP, ModelParallel
from tests.training.lightning.async_ps.machines import by_hand, together
from tests.training.lightning.async_ps.small import (
    SAMPLES,
    AtBatch,
    Diary,
    data,
    diaries,
    kill_me,
    loader,
    trainer,
    weights,
)
from tests.training.lightning.model_parallel.split_model import (
    SPLITS,
    Pair,
    adam,
    held_out,
    momentum,
    pair,
    strategy,
    train,
)

pytestmark = pytest.mark.long


@pytest.mark.each_value
@pytest.mark.parametrize(("tensor", "shard"), SPLITS)
@pytest.mark.parametrize("optimizer", [adam, momentum])
@pytest.mark.parametrize(
    "clip", [None, {"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}]
)
def test_losses_and_weights_are_one_process_s(
    tensor: int, shard: int, optimizer: Any, clip: Any, tmp_path: Path
) -> None:
    one, logged = train(tmp_path, model=pair(optimizer), **(clip or {}))
    split, same = train(tmp_path, tensor, shard, pair(optimizer), **(clip or {}))
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
    assert same == pytest.approx(logged, abs=1e-6)
    assert logged["val/samples"] == 31
    assert not torch.allclose(one, weights(pair()), atol=0.01)


def test_parts_of_parameters_and_of_the_optimizer_s_state(tmp_path: Path) -> None:
    class Parts(Callback):
        def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            counts = [_local(one).numel() for one in pl_module.parameters()]
            moments = [_local(state["exp_avg"]).numel() for state in trainer.optimizers[0].state.values()]
            assert moments == counts
            (tmp_path / f"parts-{trainer.global_rank}").write_text(str(sum(counts)))

    def _local(tensor: Any) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    train(tmp_path, 2, 2, max_epochs=1, callbacks=[Parts()])
    whole = sum(one.numel() for one in pair().parameters())
    counts = [int((tmp_path / f"parts-{rank}").read_text()) for rank in range(4)]
    assert whole == 5 * 17 + 17 + 34 + 17 * 34 + 34 + 34 * 3 + 3
    assert all(0.25 * whole < count < 0.4 * whole for count in counts), "what is not in the plan is sharded alone"


def test_a_tensor_group_sees_one_process_s_batches(tmp_path: Path) -> None:
    def seen(devices: int, made: Any) -> list[Any]:
        folder = tmp_path / str(devices)
        folder.mkdir()
        trainer(folder, made, devices, callbacks=[Diary(folder)]).fit(pair(), loader(shuffle=True), held_out())
        return [(notes["train"], notes["val"]) for notes in diaries(folder)]

    assert seen(2, ModelParallel(tensor=2)) == seen(1, "auto") * 2


class Centred(Pair):
    """Its loss reads a buffer that each batch changes."""

    centre: Tensor

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.register_buffer("centre", torch.zeros(3))

    def loss(self, batch: Any) -> Tensor:
        outputs = self.net(batch[0])
        loss = cross_entropy(outputs - self.centre, batch[1])
        if self.training:
            with torch.no_grad():
                self.centre.lerp_(outputs.mean(0), 0.5)
        return loss


class Normalised(Pair):
    """With running statistics, which differ between workers that have other samples."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.net.insert(1, nn.BatchNorm1d(17))

    def parallel_plan(self) -> Any:
        return {f"net.{place + 1}": style for place, style in ((3, ColwiseParallel()), (5, RowwiseParallel()))}


@pytest.mark.parametrize("kind", [Centred, Normalised])
def test_shards_train_as_ddp_does_and_validate_with_one_model(kind: type[Pair], tmp_path: Path) -> None:
    found, logged = [], 0.0
    for made in (DDP(), ModelParallel()):
        model = pair(kind=kind)
        done = trainer(tmp_path, made, 2, max_epochs=1)
        done.fit(model, loader(shuffle=True), held_out())
        found.append(torch.cat([value.flatten().double() for value in model.state_dict().values()]))
        logged = float(done.callback_metrics["val/loss"])
    torch.testing.assert_close(*found, rtol=0, atol=1e-6)
    alone = trainer(tmp_path, "auto").validate(model, held_out(), verbose=False)[0]
    assert logged == pytest.approx(alone["val/loss"], abs=1e-6)


@pytest.mark.thorough
def test_gradients_are_accumulated_as_in_one_process(tmp_path: Path) -> None:
    def accumulated(devices: int, made: Any) -> Tensor:
        model = pair()
        settings: Any = {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1}
        trainer(tmp_path, made, devices, **settings).fit(model, loader(), held_out())
        return weights(model)

    one = accumulated(1, "auto")
    torch.testing.assert_close(accumulated(2, ModelParallel(tensor=2)), one, rtol=0, atol=1e-6)


class Noisy(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        inputs, *rest = (tensor[index] for tensor in self.tensors)
        return (inputs + torch.randn(5), *rest)


@pytest.mark.thorough
def test_loading_processes_of_a_tensor_group_draw_the_same(tmp_path: Path) -> None:
    """Lightning seeds them by the rank."""
    made = trainer(tmp_path, ModelParallel(tensor=2), 2, max_epochs=1)
    seed_everything(11, workers=True, verbose=False)
    try:
        samples: Any = data()
        made.fit(pair(), DataLoader(Noisy(*samples.tensors), 8, num_workers=1), held_out())
    finally:
        del os.environ["PL_SEED_WORKERS"]
    assert made.global_step == 12


@pytest.mark.parametrize("then", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_checkpoint_is_whole_and_goes_on_in_another_split(then: tuple[int, int], tmp_path: Path) -> None:
    first = (1, 2) if then == (2, 2) else (2, 2)
    saving = ModelCheckpoint(tmp_path, filename="one", save_on_train_epoch_end=True)
    half: Any = {"max_epochs": 5, "enable_checkpointing": True, "callbacks": [saving]}
    at_half, _ = train(tmp_path, *first, **half)
    saved = torch.load(tmp_path / "one.ckpt", weights_only=True)
    model = pair()
    model.load_state_dict(saved["state_dict"])
    assert torch.equal(weights(model), at_half)
    assert [type(value) for value in saved["optimizer_states"][0]["state"][0].values()] == [Tensor] * 3

    through, logged = train(tmp_path, max_epochs=10)
    resumed, same = train(tmp_path, *then, **half | {"max_epochs": 10}, ckpt_path=str(tmp_path / "one.ckpt"))
    torch.testing.assert_close(resumed, through, rtol=0, atol=1e-6)
    assert same["train/loss"] == pytest.approx(logged["train/loss"], abs=1e-6)


@pytest.mark.parametrize(("tensor", "shard"), [(2, 2), (1, 2)])
def test_prediction_is_of_all_samples_in_order(tensor: int, shard: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, strategy(tensor, shard), tensor * shard)
    batches: Any = made.predict(pair(), held_out())
    assert torch.cat(batches).tolist() == list(range(31))


def test_after_a_fit_the_module_is_plain(tmp_path: Path) -> None:
    made, model = trainer(tmp_path, ModelParallel(tensor=2), 2, max_epochs=1), pair()
    made.fit(model, loader(), held_out())
    assert type(model) is Pair
    assert not any(isinstance(one, DTensor) for one in model.parameters())
    made.save_checkpoint(tmp_path / "after.ckpt", weights_only=True)
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())
    again = made.validate(model, held_out(), verbose=False)[0]
    assert again["val/loss"] == pytest.approx(
        trainer(tmp_path, "auto").validate(model, held_out(), verbose=False)[0]["val/loss"], abs=1e-6
    )


@pytest.mark.parametrize(("tensor", "shard"), [(2, 2), (2, 1)])
def test_a_death_ends_all_at_once(tensor: int, shard: int, tmp_path: Path) -> None:
    last, died = tensor * shard - 1, tmp_path / "died"

    def die(trainer: Trainer) -> None:
        died.touch()
        kill_me(trainer)

    settings: Any = {"max_epochs": 500, "callbacks": [AtBatch(last, 20, die)]}
    made = trainer(tmp_path, strategy(tensor, shard), last + 1, **settings)
    with pytest.raises(WorkerLost, match=rf"worker {last} .*SIGKILL"):
        made.fit(pair(), loader(), held_out())
    assert time.time() - died.stat().st_mtime < 5


@pytest.mark.thorough
@pytest.mark.usefixtures("machines_key")
@pytest.mark.parametrize(("tensor", "shard"), [(2, 1), (1, 2)])
def test_two_machines(tensor: int, shard: int, tmp_path: Path) -> None:
    one, logged = train(tmp_path, max_epochs=5)
    for split, same in together(by_hand(), lambda: train(tmp_path, tensor, shard, max_epochs=5, num_nodes=2), tmp_path):
        torch.testing.assert_close(split, one, rtol=0, atol=1e-6)
        assert same == pytest.approx(logged, abs=1e-6)


class Scaled(Pair):
    """Its steps read a parameter of the model's own, without a call of `forward`."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.scale = nn.Parameter(torch.ones(5))

    def loss(self, batch: Any) -> Tensor:
        return super().loss([batch[0] * self.scale, batch[1]])


def test_a_step_reads_what_is_in_no_unit(tmp_path: Path) -> None:
    one, _ = train(tmp_path, model=pair(kind=Scaled), max_epochs=5)
    torch.testing.assert_close(train(tmp_path, 1, 2, pair(kind=Scaled), max_epochs=5)[0], one, rtol=0, atol=1e-6)


class SetByTheFirstBatch(nn.Module):
    """ActNorm (Kingma & Dhariwal 2018, section 3.1), shift only."""

    is_set: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(5))
        self.register_buffer("is_set", torch.tensor(False))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.is_set:
            with torch.no_grad():
                self.shift.copy_(-inputs.mean(0))
                self.is_set.fill_(True)
        return inputs + self.shift


class Actnorm(Pair):
    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.net.insert(0, SetByTheFirstBatch())


class ActnormWithAPass(Actnorm):
    def configure_model(self) -> None:
        self.net(torch.stack([data()[sample][0] for sample in range(8)]))


def test_parameters_that_the_first_batch_sets_need_a_pass_before_the_split(tmp_path: Path) -> None:
    """The remedy in the message, tried: the first batch is then that of configure_model in one process too."""
    with pytest.raises(ValueError, match=r"writes into net\.0\.shift, .*make a forward pass in configure_model"):
        train(tmp_path, 1, 2, pair(kind=Actnorm), max_epochs=1)
    one, _ = train(tmp_path, model=pair(kind=ActnormWithAPass), max_epochs=5)
    torch.testing.assert_close(
        train(tmp_path, 1, 2, pair(kind=ActnormWithAPass), max_epochs=5)[0], one, rtol=0, atol=1e-6
    )


def test_a_copy_of_a_metric_is_of_all_workers(tmp_path: Path) -> None:
    class Copies(Pair):
        def on_train_start(self) -> None:
            self.seen.reset()
            self.copied = self.seen.clone()
            self.copied.update(float(self.global_rank))

        def on_train_epoch_end(self) -> None:
            assert self.copied.compute() == 0.5

    train(tmp_path, 1, 2, pair(kind=Copies), max_epochs=1)


class SplitsItself(Pair):
    """As Lightning's documentation of ModelParallelStrategy has it."""

    def configure_model(self) -> None:
        if (mesh := self._device_mesh) is not None:
            parallelize_module(self.net, mesh["tensor_parallel"], {"3": ColwiseParallel(), "5": RowwiseParallel()})
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def parallel_plan(self) -> Any:
        raise AssertionError("it has split itself")


class InPlace(Pair):
    """Writes into what its layers give: the layers of the plan, and those of the shards."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.net[2], self.net[4] = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def loss(self, batch: Any) -> Tensor:
        outputs = self.net(batch[0])
        outputs *= 2
        return nn.functional.cross_entropy(outputs, batch[1])


@pytest.mark.parametrize(("tensor", "shard"), SPLITS)
def test_what_a_layer_gives_may_be_written_into(tensor: int, shard: int, tmp_path: Path) -> None:
    one, _ = train(tmp_path, model=pair(momentum, InPlace), max_epochs=3)
    split, _ = train(tmp_path, tensor, shard, model=pair(momentum, InPlace), max_epochs=3)
    torch.testing.assert_close(split, one, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .FSDPSequential. returned a view")
def test_a_module_that_splits_itself_stays_as_it_is(tmp_path: Path) -> None:
    one, _ = train(tmp_path, max_epochs=5)
    torch.testing.assert_close(train(tmp_path, 2, 2, pair(kind=SplitsItself), max_epochs=5)[0], one, rtol=0, atol=1e-6)


class HalfSplit(Pair):
    def configure_model(self) -> None:
        assert self.device_mesh is not None
        parallelize_module(
            self.net, self.device_mesh["tensor_parallel"], {"3": ColwiseParallel(), "5": RowwiseParallel()}
        )


def test_parameters_that_drift_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"net.0.weight is not in any shard.* self.device_mesh\[.data_parallel.\]"):
        train(tmp_path, 2, 2, pair(kind=HalfSplit))


class Alone(RandomSampler):
    """Draws another order in each worker."""

    def __iter__(self) -> Any:
        self.generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
        return super().__iter__()


def test_a_tensor_group_with_two_batches_is_refused(tmp_path: Path) -> None:
    drawn: Any = DataLoader(data(), 8, sampler=Alone(range(SAMPLES)))
    with pytest.raises(
        ValueError,
        match=r"data: the workers of one tensor group compute each batch together.* at batch 0 of the epoch they read",
    ):
        trainer(tmp_path, ModelParallel(tensor=2), 2).fit(pair(), drawn, held_out())


@pytest.mark.parametrize(
    ("arguments", "devices", "message"),
    [
        ({"tensor": 2}, 3, r"tensor 2 does not match the 3 workers .*trainer.devices: 2"),
        ({"tensor": 2, "shard": 2}, 2, r"tensor 2 x shard 2 does not match the 2 workers .*trainer.devices: 4"),
        ({"shard": 2}, 4, r"shard 2 does not match the 4 workers"),
    ],
)
def test_degrees_make_the_workers(arguments: Any, devices: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"^tensor: .*{message}"):
        trainer(tmp_path, ModelParallel(**arguments), devices)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda model: torch.optim.LBFGS(model.parameters()), "optimizer: LBFGS computes over all .* Use another"),
        (lambda model: torch.optim.Adam(model.parameters(), foreach=True), "Adam with foreach .* Set foreach: false"),
    ],
)
def test_optimizers_that_need_whole_parameters_are_refused(optimizer: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, 2, 1, pair(optimizer))


def test_statistics_of_batches_are_not_shared(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trainer.sync_batchnorm: .*Use false"):
        train(tmp_path, 1, 2, sync_batchnorm=True)


class Named(Pair):
    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        raise LookupError(f"{type(self).__name__} {type(self).__module__} {isinstance(self, FSDPModule)}")


def test_errors_name_the_model_s_own_class(tmp_path: Path) -> None:
    """FSDP2 gives a module a class of its own."""
    with pytest.raises(Exception, match=f"Named {__name__} True"):
        trainer(tmp_path, ModelParallel(), 2).predict(pair(kind=Named), held_out())


def test_before_workers_have_met_a_trainer_is_looked_at(tmp_path: Path) -> None:
    """As Lightning's own tests and notebooks do."""
    made, model, whole = trainer(tmp_path, ModelParallel(), 2), pair(), torch.tensor(3.0)
    assert isinstance(made.strategy, ModelParallel)
    model.trainer = made
    made.strategy.connect(model)
    assert made.strategy.distributed_sampler_kwargs == {"num_replicas": 2, "rank": 0}
    assert made.strategy.reduce(whole) is whole


T = TypeVar("T")


class GenericFirst(Generic[T], Pair):
    """FSDP2 cannot give it another class."""


class GenericLast(Pair, Generic[T]):
    pass


class OfNumbers(GenericLast[int]):
    pass


def test_a_class_that_fsdp2_cannot_derive_from_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 1, 2, pair(kind=OfNumbers), max_epochs=1)
    with pytest.raises(ValueError, match=r"model: FSDP2 cannot make a sharded class of GenericFirst .*, Generic\[T\]"):
        train(tmp_path, 1, 2, pair(kind=GenericFirst), max_epochs=1)


@pytest.mark.parametrize(
    "callback", [StochasticWeightAveraging(1e-3), EMAWeightAveraging(), ModelPruning("l1_unstructured")]
)
def test_callbacks_that_want_whole_parameters_are_refused(callback: Callback, tmp_path: Path) -> None:
    name = type(callback).__name__
    with pytest.raises(ValueError, match=f"trainer.callbacks: {name} reads and writes whole parameters.* ddp"):
        train(tmp_path, 1, 2, callbacks=[callback])


class Notes(TorchCheckpointIO):
    """How a person's own storage is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        (self.folder / "options").write_text(str(storage_options))
        super().save_checkpoint(checkpoint, path)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
        (self.folder / f"weights-only-{weights_only}").touch()
        return super().load_checkpoint(path, map_location, weights_only)


class Saves(Callback):
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "own.ckpt", storage_options={"at": 3})


def test_checkpoints_pass_by_a_storage_of_one_s_own(tmp_path: Path) -> None:
    def made(*callbacks: Callback) -> Trainer:
        settings: Any = {"callbacks": list(callbacks), "plugins": [Notes(tmp_path)], "max_epochs": 1}
        return trainer(tmp_path, ModelParallel(), 2, **settings)

    made(Saves()).fit(pair(), loader(), held_out())
    assert (tmp_path / "options").read_text() == "{'at': 3}"
    made().validate(pair(), held_out(), ckpt_path=tmp_path / "own.ckpt", weights_only=False, verbose=False)
    assert [path.name for path in tmp_path.glob("weights-only-*")] == ["weights-only-False"]
