import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from scalebook.training.callbacks import heartbeat
from scalebook.training.callbacks.heartbeat import Heartbeat, fraction, line, made_again
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.jobs.job_folder import JobFolder, Progress
from tests.training.callbacks.small import OneWeight, loader, trainer


class Fractions(Callback):
    """Keeps how far the run was after each batch."""

    def __init__(self) -> None:
        self.seen: list[float | None] = []

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self.seen.append(fraction(trainer, trainer.global_step))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"max_epochs": 2}, [i / 8 for i in range(1, 9)]),
        ({"max_epochs": -1, "max_steps": 5}, [0.2, 0.4, 0.6, 0.8, 1.0]),
        ({"max_epochs": 2, "max_steps": 5}, [0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_how_much_of_the_budget_is_used(budget: dict[str, int], expected: list[float]) -> None:
    seen = Fractions()
    trainer(seen, **budget).fit(OneWeight(), loader())
    assert seen.seen == pytest.approx(expected)


def test_an_epoch_that_was_cut_short_is_no_whole_one() -> None:
    class Cut(Fractions):
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            trainer.should_stop = trainer.global_step == 6

        def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
            self.seen.append(fraction(trainer, trainer.global_step))

    seen = Cut()
    trainer(seen, max_epochs=2).fit(OneWeight(), loader())
    assert seen.seen == [0.75]


def test_a_budget_of_time() -> None:
    class Slow(Fractions):
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            time.sleep(0.05)
            super().on_train_batch_end(trainer, *args)

    seen = Slow()
    trainer(seen, max_epochs=-1, max_time={"seconds": 1}).fit(OneWeight(), loader(50))
    found = [one for one in seen.seen if one is not None]
    assert found == sorted(found)
    assert 0.03 < found[0] < 0.6
    assert found[-1] > 0.8


def test_progress_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.0)
    phases: list[str] = []

    class Watch(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            phases.append(json.loads((tmp_path / "progress.json").read_text())["phase"])

    job, measure = JobFolder(tmp_path), Measure(DataClock())
    trainer(measure, Heartbeat(job, measure, lines=True), Watch()).fit(OneWeight(), loader(), loader(1))
    last = job.progress()
    assert last is not None
    assert set(phases) == {"training"}
    assert (last.phase, last.updates, last.samples, last.epoch, last.fraction, last.left_s) == (
        "ending",
        8,
        24,
        2,
        1.0,
        0.0,
    )
    assert last.metrics["val/loss"] == pytest.approx(9.2)
    assert re.match(r"100%  epoch 2  8 updates  \d+\.\d s  ", capsys.readouterr().out)


def test_a_line_says_what_is_known() -> None:
    progress = Progress(0.0, "training", 1440, 9, 12.34, 3, 0.42, 7.6, {"train/loss": 0.1234567})
    assert line(progress) == " 42%  epoch 4  1,440 updates  12.3 s  train/loss 0.1235  8 s left"
    assert line(Progress(0.0, "training", 5)) == "epoch 1  5 updates  0.0 s"
    assert line(Progress(0.0, "training", 5), simulated=True) == "epoch 1  5 updates  0.0 virtual s"


def test_a_resumed_run_says_how_many_updates_are_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = JobFolder(tmp_path / "before"), JobFolder(tmp_path / "after")
    checkpoint = before.path / "checkpoints" / "last.ckpt"

    class Keep(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
            if trainer.global_step == 4:
                trainer.save_checkpoint(checkpoint)

    def fit(job: JobFolder, ckpt_path: Path | None = None) -> str:
        job.path.mkdir()
        measure = Measure(DataClock())
        callbacks = measure, Heartbeat(job, measure, lines=True), Keep()
        trainer(*callbacks, max_epochs=2).fit(OneWeight(), loader(), ckpt_path=ckpt_path)
        return capsys.readouterr().out

    assert "Resumes" not in fit(before)
    assert "Resumes at update 4. The earlier run had made at least 8 updates, so 4 updates are repeated." in fit(
        after, checkpoint
    )


def test_nothing_is_said_of_updates_where_none_are_lost_or_nobody_knows(tmp_path: Path) -> None:
    job = JobFolder(tmp_path / "before")
    job.path.mkdir()
    checkpoint = job.path / "checkpoints" / "last.ckpt"
    assert made_again(checkpoint, 1200) == made_again(None, 0) == ""
    job.write(Progress(time=0.0, phase="training", updates=1340))
    said = "Resumes at update 1,200. The earlier run had made at least 1,340 updates, so 140 updates are repeated."
    assert made_again(checkpoint, 1200) == said
    assert made_again(checkpoint, 1340) == ""
