"""Who comes to a collective: every hook, whatever is asked, whoever else reads it (docs/concepts/training.md)."""

import json
import re
from pathlib import Path
from typing import Any, Final

import lightning.pytorch
import pytest
import torch
from allpairspy import AllPairs
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, Timer
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import SumMetric

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.async_ps.engine_strategy import LIGHTNINGS_BARRIERS
from tests.training.lightning.async_ps.small import Batch, held_out, loader, trainer

pytestmark = pytest.mark.long

BEFORE: Final = ("setup", "configure_model", "configure_optimizers", "on_fit_start", "on_train_start")
EPOCHS: Final = ("on_train_epoch_start", "on_train_epoch_end")
IN_BATCH: Final = ("on_train_batch_start", "training_step", "on_before_backward", "on_after_backward")
AROUND_STEP: Final = ("on_before_zero_grad", "on_before_optimizer_step", "optimizer_step", "on_train_batch_end")
VALIDATION: Final = ("on_validation_start", "on_validation_epoch_start", "validation_step", "on_validation_end")
AFTER: Final = ("on_train_end", "on_fit_end", "teardown")
HOOKS: Final = [BEFORE, EPOCHS, IN_BATCH, AROUND_STEP, VALIDATION, AFTER]
LOGS: Final = {
    "on_train_start", *EPOCHS, "on_train_batch_start", "training_step", "on_before_backward", "on_after_backward",
    "on_before_zero_grad", "on_before_optimizer_step", "optimizer_step", "on_train_batch_end",
    "on_validation_start", "on_validation_epoch_start", "validation_step",
}  # fmt: skip
"""Hooks in which Lightning lets a module log."""
ONCE: Final = {"on_train_start", *EPOCHS, "on_validation_start", "on_validation_epoch_start"}
"""Of these, those of a whole epoch: nothing of a step is logged there."""
CALLS: Final = ["metric of the step", "metric of the epoch", "sync_dist", "all_gather", "barrier", "broadcast"]


class Asks(LightningModule):
    """Makes the call in each of the hooks, and writes what it is answered into `folder/<worker>.json`."""

    def __init__(self, folder: Path, call: str, hooks: tuple[str, ...]) -> None:
        super().__init__()
        self.folder, self.call, self.hooks = folder, call, hooks
        self.net: Any = torch.nn.Linear(5, 3)
        self.sums = torch.nn.ModuleDict({hook: SumMetric() for hook in hooks})
        self.heard: dict[str, list[Any]] = {}

    def ask(self, hook: str) -> None:
        if hook not in self.hooks:
            return
        strategy: Any = self.trainer.strategy
        if self.call == "all_gather":
            self.hear(hook, self.all_gather(torch.tensor(self.global_rank)).flatten().tolist())  # type: ignore[union-attr]
        elif self.call == "barrier":
            self.hear(hook, strategy.barrier(f"of {hook}"))
        elif self.call == "broadcast":
            self.hear(hook, strategy.broadcast(self.global_rank, src=0))
        elif hook in LOGS:
            of_step = self.call == "metric of the step"
            if self.call == "sync_dist":
                options = {"on_epoch": True, "sync_dist": True, "reduce_fx": "sum", "batch_size": 1}
                self.log(hook, 1.0, **options)  # type: ignore[arg-type]
            else:
                self.sums[hook].update(1.0)  # type: ignore[operator]
                self.log(hook, self.sums[hook], on_step=of_step and hook not in ONCE, on_epoch=True)  # type: ignore[arg-type]
            self.hear(hook, None)

    def hear(self, hook: str, value: Any) -> None:
        self.heard.setdefault(hook, []).append(value)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.ask("training_step")
        return cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.ask("validation_step")
        self.log("val/loss", cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        self.ask("configure_optimizers")
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.ask("optimizer_step")

    def on_train_epoch_end(self) -> None:
        self.ask("on_train_epoch_end")

    def on_fit_end(self) -> None:
        self.ask("on_fit_end")
        self.tell()

    def teardown(self, stage: str) -> None:
        self.ask("teardown")
        self.tell()

    def tell(self) -> None:
        metrics = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        (self.folder / f"{self.global_rank}.json").write_text(json.dumps({"heard": self.heard, "metrics": metrics}))


def _asking(hook: str) -> Any:
    def method(self: Asks, *_args: Any, **_kwargs: Any) -> None:
        self.ask(hook)

    return method


for _hook in {hook for group in HOOKS for hook in group} - vars(Asks).keys():
    setattr(Asks, _hook, _asking(_hook))


class Reads(Callback):
    """As a progress bar: in worker 0 alone, before anybody else's hooks."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            assert trainer.callback_metrics is not None


def callbacks(kind: str, folder: Path) -> list[Callback]:
    made: dict[str, list[Callback]] = {
        "none": [],
        "checkpoint": [ModelCheckpoint(folder / "kept", save_on_train_epoch_end=True, every_n_epochs=1)],
        "early stopping": [EarlyStopping("val/loss", patience=9, strict=False, check_on_train_epoch_end=True), Timer()],
        "own": [Reads()],
    }
    return made[kind]


ROWS = list(AllPairs([
    HOOKS, CALLS, ["none", "checkpoint", "early stopping", "own"], [True, False],
    ["async", "bounded", "sync", "softsync"], [96, 88], [True, False]]))  # fmt: skip


@pytest.mark.parametrize(("hooks", "call", "kind", "bar", "rule", "samples", "validates"), ROWS)
def test_every_hook_is_answered_alike_in_all_workers(
    hooks: tuple[str, ...],
    call: str,
    kind: str,
    bar: bool,
    rule: Any,
    samples: int,
    validates: bool,
    tmp_path: Path,
) -> None:
    made = trainer(
        tmp_path, AsyncPS(rule=rule, workers=2, limits=Limits(deadline_s=30)),
        max_epochs=2, callbacks=callbacks(kind, tmp_path), enable_progress_bar=bar,
        enable_checkpointing=kind == "checkpoint", limit_val_batches=1.0 if validates else 0,
    )  # fmt: skip
    model = Asks(tmp_path, call, hooks)
    made.fit(model, loader(samples=samples), held_out())
    told = [json.loads((tmp_path / f"{worker}.json").read_text()) for worker in (0, 1)]
    for worker, one in enumerate(told):
        for hook, answers in one["heard"].items():
            _check_answers(worker, hook, call, answers)
    batches = samples // 8
    for hook in hooks:
        if call in CALLS[:3] and hook in LOGS and hook not in VALIDATION:
            expected = {"on_train_start": 2.0}.get(hook, 2.0 if hook in EPOCHS else float(batches))
            for one in told:
                names = {hook, f"{hook}_epoch"} & one["metrics"].keys()
                assert {name: one["metrics"][name] for name in names} == dict.fromkeys(names, expected)
                assert names


def _check_answers(worker: int, hook: str, call: str, answers: list[Any]) -> None:
    in_batch = hook in IN_BATCH or hook in AROUND_STEP
    if hook in VALIDATION:
        assert worker == 0
        assert call not in ("all_gather", "broadcast") or answers == [[0] if call == "all_gather" else 0] * len(answers)
    elif call == "all_gather":
        assert all(worker in answer and answer == sorted(answer) for answer in answers)
        assert in_batch or answers == [[0, 1]] * len(answers)
        assert [0, 1] in answers
    elif call == "broadcast":
        assert in_batch or set(answers) == {0}


def test_lightnings_barriers_are_known_by_name() -> None:
    """A barrier of Lightning's own that is not known would be met by those workers alone that come to it."""
    root = Path(lightning.pytorch.__file__).parent
    texts = [path.read_text() for path in root.rglob("*.py") if "strategies" not in path.parts]
    names = {name for text in texts for name in re.findall(r'strategy\.barrier\(f?"([^"]+)"\)', text)}
    of_stages = {name.replace("{stage.dataloader_prefix}", prefix) for name in names for prefix in ("val", "test")}
    assert of_stages - LIGHTNINGS_BARRIERS == set()
