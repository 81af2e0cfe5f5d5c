"""What ends a run, and what it leaves behind to go on from."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from scalebook.training.base.failures import Diverged
from scalebook.training.callbacks.divergence import DivergenceGuard
from scalebook.training.callbacks.job_files import AgreedDecision, LastCheckpoint, StopFile
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.resource_limits import Threads
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.lightning import DDP, AsyncPS
from tests.training.callbacks.small import OneWeight, loader, trainer


@pytest.mark.parametrize(("value", "said"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_a_loss_that_is_no_number_raises_with_the_count_of_updates(value: float, said: str) -> None:
    class Bad(OneWeight):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            return self.weight * (value if batch_idx == 2 else 1.0)

    measure = Measure(DataClock())
    with pytest.raises(Diverged, match=rf"the loss that training_step returned became {said} after 2 updates"):
        trainer(measure, DivergenceGuard(measure)).fit(Bad(), loader())


class Exploding(OneWeight):
    """Its loss is infinite once its parameters have had 16 updates, each of 1."""

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.weight - (math.inf if self.weight.item() < -5.5 else 0.0)
        self.log_dict({"train_mse": loss, "other": torch.tensor(1.0), "ratio": torch.tensor(math.nan)})
        self.log("my/loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


@pytest.mark.parametrize(
    ("strategy", "accumulated"),
    [("auto", 1), ("auto", 2), (lambda: AsyncPS(workers=2), 1), (lambda: AsyncPS("sync", workers=2), 1), (DDP, 2)],
    ids=["one", "accumulated", "async", "sync", "ddp"],
)
def test_the_message_names_the_model_s_own_metric_and_its_update(
    strategy: Any, accumulated: int, one_thread: None
) -> None:
    """Of two asynchronous workers the other one may be seen first, an update later."""
    measure = Measure(DataClock())
    made = strategy if strategy == "auto" else strategy()
    ran = trainer(
        measure, DivergenceGuard(measure), strategy=made, devices=1 if strategy == "auto" else 2, max_epochs=100,
        accumulate_grad_batches=accumulated,
    )  # fmt: skip
    with pytest.raises(Diverged) as caught:
        ran.fit(Exploding(), loader())
    assert re.match("my/loss became infinite after (16|17) updates", str(caught.value))
    assert caught.value.updates == 16 or ran.num_devices == 2


def test_on_a_gpu_the_first_loss_counts_however_late_it_is_seen() -> None:
    """The kernels of a GPU, computed here."""
    guard = DivergenceGuard(Measure(DataClock()))
    for updates, loss in enumerate((1.0, 2.0, math.inf, math.nan, 3.0)):
        guard._updates = updates
        guard._note(torch.tensor(loss))
    with pytest.raises(Diverged, match="became infinite after 2 updates"):
        guard._look(trainer(), 0.0)


def test_a_stop_file_ends_the_run_after_the_batch(tmp_path: Path) -> None:
    class At(Callback):
        def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
            if trainer.global_step == 5:
                (tmp_path / "stop").touch()

    job, measure = JobFolder(tmp_path), Measure(DataClock())
    stop = StopFile(job, measure)
    stop._asked = AgreedDecision(job.stop_file.exists, 0.0)
    ran = trainer(At(), measure, stop, max_epochs=1000, min_epochs=500)
    ran.fit(OneWeight(), loader())
    assert ran.global_step == 6
    assert job.cut.exists()


@pytest.mark.parametrize(("epochs", "cut"), [(2, False), (3, True)])
def test_a_stop_at_the_last_sample_cuts_nothing(tmp_path: Path, epochs: int, cut: bool) -> None:
    class AtEight(Callback):
        def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
            if trainer.global_step == 7:
                (tmp_path / "stop").touch()

    job, measure = JobFolder(tmp_path), Measure(DataClock())
    stop = StopFile(job, measure)
    stop._asked = AgreedDecision(job.stop_file.exists, 0.0)
    ran = trainer(AtEight(), measure, stop, max_epochs=epochs)
    ran.fit(OneWeight(), loader())
    assert ran.global_step == 8
    assert job.cut.exists() == cut


def test_the_question_is_asked_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("scalebook.training.callbacks.job_files.time.monotonic", lambda: now)
    asked: list[float] = []

    def decide() -> bool:
        asked.append(now)
        return False

    agreed, alone = AgreedDecision(decide, 1.0), trainer()
    for tenth in range(1, 31):
        now = tenth / 10
        agreed.now(alone)
    assert asked == [0.1, 1.1, 2.1]


def test_the_pace_of_workers_in_step_follows_their_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("scalebook.training.callbacks.job_files.time.monotonic", lambda: now)
    agreed = AgreedDecision(lambda: False, 0.5)
    now = 0.02  # two steps of 10 ms
    assert agreed._pace() == 50
    now = 4.0
    assert agreed._pace() == 1


def test_the_last_checkpoint_is_whole_and_holds_the_last_weights(tmp_path: Path) -> None:
    ran = trainer(
        LastCheckpoint(tmp_path / "checkpoints", every_s=0.0), enable_checkpointing=True, default_root_dir=tmp_path
    )
    model = OneWeight()
    ran.fit(model, loader())
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["last.ckpt"]
    kept = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=False)
    assert kept["global_step"] == 8
    assert kept["state_dict"]["weight"] == model.weight


def test_threads_are_what_the_config_says() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []

    class See(Callback):
        def on_train_start(self, *args: Any) -> None:
            seen.append(torch.get_num_threads())

    try:
        trainer(Threads(2), See(), max_epochs=1).fit(OneWeight(), loader())
    finally:
        torch.set_num_threads(before)
    assert seen == [2]
