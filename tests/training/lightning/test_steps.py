"""A step is an update, whoever made it: for the Trainer, for callbacks of anybody, for loggers."""

import copy
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.steps import Step, plain
from tests.training.lightning.async_ps.contract.cases import BATCHES, CASES, Case, batches, every, few, fitted, in_order
from tests.training.lightning.async_ps.contract.models import GAN, Plain
from tests.training.lightning.async_ps.small import AtBatch, trainer

EVERY = 5


@pytest.mark.parametrize("n", [1, 2, 3, 7, 50])
def test_who_asks_once_a_batch_hears_of_every_multiple_once(n: int) -> None:
    draw, at, heard = random.Random(n), 0, 0
    for _ in range(200):
        before, at = at, at + draw.choice([0, 1, 2, 5])
        step = Step(at, before, at)
        news = [number for number in range(before + 1, at + 1) if number % n == 0]
        assert (step % n == 0) is bool(news)
        assert ((step - 1 + 1) % n == 0) is bool(news)
        assert ((step + 1) % n == 0) is any(number % n == 0 for number in range(before + 2, at + 2))
        heard += len(news)
    assert heard == at // n


def test_a_step_is_a_number_to_everybody_else() -> None:
    step = Step(8, 5, 8)
    assert (step, step + 1, 1 + step, step - 1, step // 3, step / 2, f"{step}", json.dumps(step)) == (
        *(8, 9, 9, 7, 2, 4.0),
        *("8", "8"),
    )
    assert torch.tensor(step).item() == 8
    copies = [copy.deepcopy(step), pickle.loads(pickle.dumps(step)), *plain({"a": [step, (step,)]})["a"]]  # noqa: S301
    assert copies == [8, 8, 8, (8,)]
    assert [type(one) for one in (*copies, *copies[3])] == [int, int, int, tuple, int]


@every
def test_global_step_and_the_names_of_checkpoints_count_updates(case: Case, tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path / "kept", save_top_k=-1)
    made, seen = fitted(case, tmp_path, Plain(), callbacks=[keep], enable_checkpointing=True)
    updates = case.updates(2 * BATCHES)
    assert (made.global_step, made.current_epoch, seen[0]["updates"]) == (updates, 2, updates)
    saved = {path.name: torch.load(path, weights_only=True) for path in (tmp_path / "kept").iterdir()}
    assert f"epoch=1-step={updates}.ckpt" in saved
    for name, one in saved.items():
        assert name == f"epoch={one['epoch']}-step={one['global_step']}.ckpt"
        if not case.is_ddp:
            assert one["async_ps"]["versions"] == [one["global_step"]]


class Theirs(ModelCheckpoint):
    """A subclass as people write them."""

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        super().on_train_batch_end(trainer, *args)


class Asks(Callback):
    """Notes the step of every batch, and those at which something is to be done."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Plain)
        pl_module.notes.setdefault("steps", []).append(int(trainer.global_step))
        if trainer.global_step % EVERY == 0:
            pl_module.notes.setdefault("due", []).append(int(trainer.global_step))


@few
def test_what_is_done_every_n_steps_is_done_when_n_are_over(case: Case, tmp_path: Path) -> None:
    keep = Theirs(tmp_path / "kept", save_top_k=-1, every_n_train_steps=EVERY)
    callbacks = [keep, Asks()]
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=4, callbacks=callbacks, enable_checkpointing=True)
    steps, due = seen[0]["steps"], seen[0]["due"]
    assert len({step // EVERY for step in due}) == len(due)
    assert len(due) == len({step // EVERY for step in steps} - {0})
    saved = {path.name: torch.load(path, weights_only=True) for path in (tmp_path / "kept").iterdir()}
    assert len(saved) == len(due)
    for name, one in saved.items():
        assert name.endswith(f"step={one['global_step']}.ckpt")
        assert one["optimizer_states"][0]["param_groups"]


@few
def test_min_steps_counts_updates(case: Case, tmp_path: Path) -> None:
    def stop(trainer: Trainer) -> None:
        trainer.should_stop = True

    stops = [AtBatch(0, 0, stop), AtBatch(1, 0, stop)]
    made, _ = fitted(case, tmp_path, Plain(), max_epochs=1000, min_steps=30, callbacks=stops)
    assert 30 <= made.global_step <= (30 if case.exact else 40)


def logged(folder: Path) -> list[int]:
    rows = (folder / "metrics.csv").read_text().splitlines()
    at = rows[0].split(",").index("step")
    loss = rows[0].split(",").index("train/loss")
    return [int(row.split(",")[at]) for row in rows[1:] if row.split(",")[loss]]


@pytest.mark.parametrize("rule", ["async", "sync", "softsync"])
def test_loggers_are_told_updates(tmp_path: Path, rule: Any) -> None:
    made = trainer(tmp_path, AsyncPS(rule=rule, workers=2), max_epochs=4, log_every_n_steps=EVERY)
    made.loggers = [CSVLogger(tmp_path, "", "")]
    model = Plain()
    made.fit(model, batches(), in_order())
    steps = [step + 1 for step in logged(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] <= made.global_step
    assert len({step // EVERY for step in steps}) == len(steps)
    if rule == "sync":
        assert steps == [*range(EVERY, made.global_step + 1, EVERY)]


@pytest.mark.parametrize("model", [Plain, GAN])
def test_one_worker_counts_as_a_single_process(model: type[Plain], tmp_path: Path) -> None:
    names: list[list[str]] = []
    told: list[Any] = []
    for name, strategy in (("single", "auto"), ("one", AsyncPS())):
        keep = ModelCheckpoint(tmp_path / name, save_top_k=-1, every_n_epochs=1)
        made = trainer(tmp_path, strategy, callbacks=[keep], enable_checkpointing=True, log_every_n_steps=EVERY)
        made.loggers = [CSVLogger(tmp_path, name, "logs")]
        made.fit(model(), batches(), in_order())
        names.append(sorted(path.name for path in (tmp_path / name).glob("*.ckpt")))
        told.append((tmp_path / name / "logs" / "metrics.csv").read_text().splitlines()[0])
        told.append(made.global_step)
    assert names[0] == names[1]
    assert told[:2] == told[2:]


def test_what_is_saved_of_a_step_is_safe_to_load(tmp_path: Path) -> None:
    class Remembers(Callback):
        last = 0

        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            self.last = trainer.global_step

        def state_dict(self) -> dict[str, Any]:
            return {"last": self.last}

    (case,) = [case for case in CASES if case.name == "async-inline"]
    made, _ = fitted(case, tmp_path, Plain(), callbacks=[Remembers()], enable_checkpointing=True)
    assert made.checkpoint_callback is not None
    saved = torch.load(made.checkpoint_callback.best_model_path, weights_only=True)  # type: ignore[attr-defined]
    remembered = [state["last"] for name, state in saved["callbacks"].items() if "Remembers" in name]
    assert [type(one) for one in remembered] == [int]
