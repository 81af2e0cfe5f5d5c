from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.profilers import SimpleProfiler

from scalebook.training.lightning import SkipsEmptyHooks


class Ends(SkipsEmptyHooks, Callback):
    def __init__(self) -> None:
        self.called: list[str] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.called.append("end")


class StartsAndEnds(Ends):
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.called.append("start")


def test_only_hooks_that_a_callback_or_its_base_defines_are_called(tmp_path: Path) -> None:
    ends, both, profiler = Ends(), StartsAndEnds(), SimpleProfiler()
    trainer = Trainer(
        accelerator="cpu", callbacks=[ends, both], max_steps=2, limit_val_batches=1, logger=False, profiler=profiler,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(BoringModel())
    assert ends.called == ["end"] * 2
    assert both.called == ["start", "end"] * 2
    entered = {name.partition(".")[2] for name in profiler.recorded_durations if name.startswith("[Callback]Ends.")}
    assert "on_train_batch_end" in entered
    assert not entered & {"on_train_batch_start", "on_before_backward", "on_validation_batch_end"}
    assert "on_train_epoch_end" in entered, "hooks that come once per epoch are as they were"
