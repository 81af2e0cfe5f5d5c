"""The strategies for Trainers of the package `pytorch_lightning`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import pytorch_lightning
from lightning.pytorch import Trainer

from scalebook import AsyncPS
from scalebook.training.lightning import package

pytestmark = pytest.mark.long
HERE = Path(package.__file__)
FIT = """
import lightning.pytorch  # beside it
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint, StochasticWeightAveraging

from scalebook.pytorch_lightning import DDP, AsyncPS, register

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return (self.line(batch) - 3 * batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", (self.line(batch) - 3 * batch).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(strategy, devices, *callbacks):
    pl.seed_everything(1, verbose=False)
    best, stops = ModelCheckpoint(FOLDER, monitor="loss"), EarlyStopping("loss", patience=1, stopping_threshold=1e-3)
    trainer = pl.Trainer(accelerator="cpu", strategy=strategy, devices=devices, max_epochs=50, logger=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[best, stops, *callbacks])
    model, loader = Line(), torch.utils.data.DataLoader(torch.linspace(-1, 1, 32).unsqueeze(1), 4)
    trainer.fit(model, loader, loader)
    assert best.best_model_score < 1e-3, best.best_model_score
    assert 0 < stops.stopped_epoch < 49
    assert abs(model.line.weight.item() - 3) < 0.2

register()
fit("async_ps", 2)
fit(DDP(), 2)
try:
    fit(AsyncPS(workers=2), 1, StochasticWeightAveraging(0.1))
except ValueError as error:
    assert "StochasticWeightAveraging changes parameters" in str(error), error
else:
    raise AssertionError("not refused")
try:
    lightning.pytorch.Trainer(strategy=AsyncPS())
except ValueError as error:
    assert "<AsyncPS for Trainers of pytorch_lightning; for those of lightning: from scalebook import" in str(error)
print("held")
"""


@pytest.mark.thorough
def test_a_fit(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FIT.replace("FOLDER", repr(str(tmp_path / "checkpoints"))))
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=240)
    assert done.stdout.endswith("held\n"), done.stderr


def test_the_other_package_is_named() -> None:
    """By Lightning's own message, which has the strategy in it; and where it is asked for too late."""
    where = (
        r"<AsyncPS for Trainers of lightning; for those of pytorch_lightning: from scalebook.pytorch_lightning import"
    )
    with pytest.raises(ValueError, match=where):
        pytorch_lightning.Trainer(strategy=AsyncPS())  # type: ignore[arg-type]  # it is none of theirs
    assert Trainer(strategy=AsyncPS(workers=1), accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(ImportError, match=r"already has Scalebook's strategies of the package `lightning`"):
        import scalebook.pytorch_lightning  # noqa: F401


def test_both_packages_give_the_same_names() -> None:
    choice = next(node for node in ast.parse(HERE.read_text()).body if isinstance(node, ast.If))
    assert "scalebook.pytorch_lightning" in ast.unparse(choice.test)
    ours, theirs = (ast.unparse(block) for block in (ast.Module(choice.body, []), ast.Module(choice.orelse, [])))
    assert theirs == ours.replace("lightning.fabric", "lightning_fabric").replace(
        "lightning.pytorch", "pytorch_lightning"
    )


def test_nothing_else_of_the_strategies_imports_lightning() -> None:
    for path in HERE.parent.glob("*.py"):
        found = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [str(node.module)]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert path == HERE or not found & {"lightning", "pytorch_lightning", "lightning_fabric"}, path
