import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch.optim import SGD, Adagrad, Adam
from torch.optim.lr_scheduler import StepLR

from scalebook.training.engine.rules.codecs import TopK
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS, register
from tests.training.benches import wait_for
from tests.training.lightning.async_ps.small import (
    HELD_OUT,
    SAMPLES,
    AtBatch,
    Diary,
    Small,
    diaries,
    fit,
    held_out,
    loader,
    seeded_model,
    trainer,
    two_optimizers,
    weights,
)


def momentum(model: LightningModule) -> Any:
    return SGD(model.parameters(), lr=0.05, momentum=0.9)


def adam(model: LightningModule) -> Any:
    return Adam(model.parameters(), lr=0.01)


def scheduled_adagrad(model: LightningModule) -> Any:
    optimizer = Adagrad(model.parameters(), lr=0.05)
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": StepLR(optimizer, 3, 0.5), "interval": "step"},
    }


@pytest.mark.each_value
@pytest.mark.parametrize("optimizer", [momentum, adam, scheduled_adagrad])
@pytest.mark.parametrize("settings", [{}, {"gradient_clip_val": 0.1, "accumulate_grad_batches": 2}])
def test_one_worker_gives_the_weights_of_a_single_process_bit_for_bit(
    tmp_path: Path, optimizer: Callable[[LightningModule], Any], settings: dict[str, Any]
) -> None:
    single, one = trainer(tmp_path, "auto", **settings), trainer(tmp_path, AsyncPS(), **settings)
    expected = fit(single, seeded_model(optimizer))
    torch.testing.assert_close(fit(one, seeded_model(optimizer)), expected, rtol=0, atol=0)
    assert one.callback_metrics == single.callback_metrics


def test_workers_share_the_epoch_and_worker_0_validates_on_everything(tmp_path: Path) -> None:
    fit(trainer(tmp_path, AsyncPS(workers=3), max_epochs=1, callbacks=[Diary(tmp_path)]))
    seen = diaries(tmp_path)
    assert all(len(notes["train"]) >= 8 for notes in seen)
    assert sorted(seen[0]["train"] + seen[1]["train"] + seen[2]["train"]) == list(range(SAMPLES))
    assert [notes["val"] for notes in seen] == [list(range(HELD_OUT)), [], []]
    assert len({notes["pid"] for notes in seen}) == 3


def test_metrics_that_would_synchronise_do_not_wait(tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=1)
    fit(made)
    assert made.callback_metrics["val/mean_index"].item() == (HELD_OUT - 1) / 2
    assert 0 < made.callback_metrics["train/loss"].item() < 5


class UntilUpdates(Callback):
    """The end of training as worker 0 has it, which waits for every update: the others come to see them too."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        if trainer.global_rank > 0:
            wait_for(lambda: strategy.figures.counts().updates >= self.updates, f"{self.updates} updates")


@pytest.mark.parametrize("max_steps", [25, 1])
def test_max_steps_counts_the_updates_of_all_workers(tmp_path: Path, max_steps: int) -> None:
    callbacks = [UntilUpdates(max_steps), Diary(tmp_path)]
    fit(trainer(tmp_path, AsyncPS(workers=3), callbacks=callbacks, max_epochs=-1, max_steps=max_steps))
    assert [notes["updates"] for notes in diaries(tmp_path)] == [max_steps] * 3
    assert sum(diaries(tmp_path)[0]["histogram"]) == max_steps


def test_the_last_checkpoint_waits_for_every_update(tmp_path: Path) -> None:
    slow = AtBatch(1, 5, lambda trainer: time.sleep(0.7))
    made = trainer(tmp_path, AsyncPS(workers=2), enable_checkpointing=True, callbacks=[slow])
    final = fit(made, seeded_model(adam))
    assert made.checkpoint_callback is not None
    saved = torch.load(made.checkpoint_callback.best_model_path, weights_only=True)  # type: ignore[attr-defined]
    updates = 2 * SAMPLES // 8
    assert saved["async_ps"]["versions"] == [updates]
    assert [state["step"].item() for state in saved["optimizer_states"][0]["state"].values()] == [updates] * 4
    again = Small()
    again.load_state_dict(saved["state_dict"])
    assert torch.equal(weights(again), final)


@pytest.mark.thorough
@pytest.mark.parametrize("codec", ["fp32", TopK(0.1)], ids=str)
def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path, codec: Any) -> None:
    def ordered(made: Trainer, **arguments: Any) -> torch.Tensor:
        model = seeded_model(momentum)
        model.net[2] = torch.nn.Identity()  # dropout's random numbers are not part of a checkpoint
        made.fit(model, loader(), held_out(), **arguments)
        return weights(model)

    whole = ordered(trainer(tmp_path, AsyncPS(push_codec=codec), max_epochs=4))
    first = trainer(tmp_path, AsyncPS(push_codec=codec), max_epochs=2, enable_checkpointing=True)
    ordered(first)
    assert first.checkpoint_callback is not None
    path = first.checkpoint_callback.best_model_path  # type: ignore[attr-defined]
    second = trainer(tmp_path, AsyncPS(push_codec=codec), max_epochs=4, enable_checkpointing=True)
    assert torch.equal(ordered(second, ckpt_path=path), whole)


def test_resuming_with_more_workers_goes_on_counting(tmp_path: Path) -> None:
    first = trainer(tmp_path, AsyncPS(workers=2), enable_checkpointing=True)
    fit(first, seeded_model(adam))
    assert first.checkpoint_callback is not None
    path = first.checkpoint_callback.best_model_path  # type: ignore[attr-defined]
    second = trainer(tmp_path, AsyncPS(workers=3), max_epochs=3, enable_checkpointing=True, callbacks=[Diary(tmp_path)])
    fit(second, seeded_model(adam), ckpt_path=path)
    per_epoch = SAMPLES // 8
    assert diaries(tmp_path)[0]["updates"] == 2 * per_epoch + per_epoch


@pytest.mark.thorough
def test_early_stopping_in_worker_0_stops_all(tmp_path: Path) -> None:
    stop = EarlyStopping("val/loss", patience=1, min_delta=1e9)
    started = time.monotonic()
    fit(trainer(tmp_path, AsyncPS(workers=2), max_epochs=10_000, callbacks=[stop, Diary(tmp_path)]))
    assert time.monotonic() - started < 60
    assert len(diaries(tmp_path)) == 2
    assert diaries(tmp_path)[0]["updates"] < 2000


def test_should_stop_in_the_middle_of_an_epoch_stops_all(tmp_path: Path) -> None:
    def stop(trainer: Trainer) -> None:
        trainer.should_stop = True

    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=10_000, callbacks=[AtBatch(0, 20, stop), Diary(tmp_path)])
    fit(made)
    assert diaries(tmp_path)[0]["updates"] == sum(diaries(tmp_path)[0]["histogram"])
    assert 19 * 8 < len(diaries(tmp_path)[0]["train"]) <= 21 * 8
    assert diaries(tmp_path)[0]["validations"] >= 2  # after each epoch, and once more at the end


@pytest.mark.parametrize("host", ["inline", "process"])
@pytest.mark.parametrize("stopper", [0, 1])
def test_who_stops_in_step_stops_all_after_the_same_update(host: Any, stopper: int, tmp_path: Path) -> None:
    """Early stopping is worker 0's, after its 4th epoch; a worker may also stop in the middle of one."""

    def stop(trainer: Trainer) -> None:
        trainer.should_stop = True

    stops: Callback = AtBatch(1, 20, stop) if stopper else EarlyStopping("val/loss", patience=3, min_delta=1e9)
    made = trainer(
        tmp_path,
        AsyncPS(rule="sync", workers=2, host=host, limits=Limits(deadline_s=20)),
        max_epochs=100,
        callbacks=[stops],
    )
    fit(made)
    assert made.global_step == (21 if stopper else 4 * 6)


class Odd(Small):
    """A tied weight, a frozen layer, and one that has a gradient in every other step only."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = torch.nn.Linear(5, 16)
        self.twin.weight = self.net[0].weight  # type: ignore[assignment]
        self.frozen = torch.nn.Linear(3, 3).requires_grad_(False)
        self.sometimes = torch.nn.Linear(3, 3)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        out = self.frozen(self.net[3](self.net[0](batch[0]) + self.twin(batch[0])))
        return torch.nn.functional.cross_entropy(self.sometimes(out) if batch_idx % 2 else out, batch[1])


@pytest.mark.parametrize("workers", [1, 2])
def test_tied_frozen_and_sometimes_unused_parameters(tmp_path: Path, workers: int) -> None:
    def odd() -> Odd:
        torch.manual_seed(2)
        return Odd()

    model, frozen = odd(), odd().frozen.weight.detach().clone()
    made = trainer(tmp_path, AsyncPS(workers=workers))
    asynchronous = fit(made, model)
    assert model.twin.weight is model.net[0].weight
    assert torch.equal(model.frozen.weight, frozen)
    again = odd()
    single = fit(trainer(tmp_path, "auto"), again)
    assert torch.equal(asynchronous, single) is (workers == 1)


def test_parameters_may_be_made_in_the_worker(tmp_path: Path) -> None:
    class Late(Small):
        def configure_model(self) -> None:
            self.late = torch.nn.Linear(3, 3)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.late(self.net(batch[0])), batch[1])

    model = Late()
    made = trainer(tmp_path, AsyncPS(workers=2), callbacks=[Diary(tmp_path)])
    fit(made, model)
    assert diaries(tmp_path)[0]["updates"] == 2 * SAMPLES // 8
    made.save_checkpoint(tmp_path / "after.ckpt", weights_only=True)
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)["state_dict"]
    assert saved.keys() == model.state_dict().keys() > Small().state_dict().keys()


def test_layers_that_only_a_worker_can_make_are_said_to_be_missing(tmp_path: Path) -> None:
    here = os.getpid()

    class Late(Small):
        def configure_model(self) -> None:
            if os.getpid() == here:
                raise RuntimeError("no data here")
            self.late = torch.nn.Linear(3, 3)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.late(self.net(batch[0])), batch[1])

    model = Late()
    before = next(model.parameters()).detach().clone()
    said = r"the module in this process lacks late\.weight, late\.bias, because .* RuntimeError here: no data here\."
    with pytest.warns(UserWarning, match=said):
        fit(trainer(tmp_path, AsyncPS(workers=2)), model)
    assert not torch.equal(next(model.parameters()), before)


def test_validate_test_and_predict_need_one_worker(tmp_path: Path) -> None:
    register()
    model = seeded_model()
    made = trainer(tmp_path, AsyncPS(workers=2))
    (result,) = made.validate(model, loader(), verbose=False)
    (expected,) = trainer(tmp_path, "auto").validate(model, loader(), verbose=False)
    assert result == expected
    (tested,) = trainer(tmp_path, "async_ps", devices=2).test(model, loader(), verbose=False)
    assert tested["test/loss"] == pytest.approx(result["val/loss"])
    fit(made, seeded_model())


def test_the_name_is_registered(tmp_path: Path) -> None:
    register()
    made = trainer(tmp_path, "async_ps", devices=2)
    assert isinstance(made.strategy, AsyncPS)
    assert made.world_size == 2


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (two_optimizers, "model: two optimizers share a parameter"),
        (lambda model: torch.optim.LBFGS(model.parameters()), "optimizer: LBFGS does not work"),
        (
            lambda model: torch.optim.SGD(torch.nn.LazyLinear(1).parameters(), 0.1),
            "model: a parameter has no shape until the first forward",
        ),
        (lambda model: None, "model: configure_optimizers returned nothing"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*configure_optimizers. returned .None.")
def test_optimizers_that_cannot_be_shared_are_refused_by_name(
    tmp_path: Path, optimizer: Callable[[LightningModule], Any], reason: str
) -> None:
    model = Small(optimizer)
    model.automatic_optimization = optimizer is not two_optimizers
    with pytest.raises(ValueError, match=reason):
        fit(trainer(tmp_path, AsyncPS(workers=2)), model)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"workers": 0}, "workers: 0 is less than 1"),
        ({"limits": {"deadline_s": -1.0}}, "limits.deadline_s: -1.0 is not above 0. Use more than 0"),
    ],
)
def test_wrong_arguments_name_key_and_remedy(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AsyncPS(**arguments)
