"""A model of a person's own that logs `val_loss`, `val_acc`, `val_r2`, as Lightning's documentation does: what is best,
who says so, and what a search makes of it."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalebook.app.runs.remarks import set_direction
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.notebook import edit, store
from scalebook.training.notebook.cells import ClaimCell, ComparisonCell
from scalebook.training.notebook.claims.claim_table import text
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.comparison import compare, compare_runs
from scalebook.training.notebook.offered_metrics import offered
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import names
from scalebook.training.tracking.directions import Direction
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.describing import fork_descriptions, forked

pytestmark = [pytest.mark.long, pytest.mark.thorough, pytest.mark.timeout(300)]
DEADLINE_S = 250.0  # of a busy machine; 20 s on a free one

MODULE = """
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, R2Score


class Gain(MeanMetric):
    higher_is_better = True


class Own(lightning.LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Linear(2, 1)
        self.r2, self.gain = R2Score(), Gain()

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.line(batch[0])[:, 0], batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        found = self.line(batch[0])[:, 0]
        self.log("val_loss", torch.nn.functional.mse_loss(found, batch[1]))
        self.log("val_acc", ((found > 0) == (batch[1] > 0)).float().mean())
        self.r2(found, batch[1])
        self.log("val_r2", self.r2)
        self.gain(found.std())
        self.log("val_gain", self.gain)
        self.log("val_odd", found.std())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Points(lightning.LightningDataModule):
    def _loader(self, seed):
        points = torch.randn(128, 2, generator=torch.Generator().manual_seed(seed))
        return DataLoader(TensorDataset(points, points[:, 0] - points[:, 1]), 32)

    def train_dataloader(self):
        return self._loader(1)

    def val_dataloader(self):
        return self._loader(2)
"""
NOTEBOOK = """# Lab

```yaml experiment=own
repeats: 3
config:
  model: my_lab.Own
  data: my_lab.Points
  trainer:
    max_epochs: 4
    accelerator: cpu
    callbacks:
    - {class_path: lightning.pytorch.callbacks.ModelCheckpoint, init_args: {monitor: val_r2, mode: max}}
```

```yaml comparison=r2
runs: [own]
metric: val_r2
```

```yaml comparison=gain
runs: [own]
metric: val_gain
```

```yaml comparison=odd
runs: [own]
metric: val_odd  # how far the answers are spread
```

```yaml comparison=unnamed
runs: [own]
```

```yaml claim=good
runs: own
figure: best
metric: val_odd
at_least: 0.1
```

```yaml search=rates
experiment: own
objective: METRIC
trials: 2
sampler: random
space: {model.lr: {values: [0.01, 0.05]}}
```
"""


class Lab:
    """The folder with its runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.workspace = root, Workspace(root)
        self.reader = RunReader(self.workspace.tracking_uri())

    @property
    def stored(self) -> Stored:
        return store.read(self.root / "lab.md")

    @property
    def description(self) -> Description:
        return describe(self.workspace)

    def runs(self) -> list[RunRecord]:
        return self.reader.runs(notebook="lab.md", cell="own", where=f"tags.`{names.TAG_TRIAL}` IS NULL")

    def direction(self, name: str) -> Direction:
        (cell,) = (cell for cell in self.stored.notebook.comparisons() if cell.name == name)
        return compare(self.reader, "lab.md", self.stored.notebook, cell, self.description).direction

    def search(self, objective: str) -> tuple[int, str]:
        (self.root / "lab.md").write_text(NOTEBOOK.replace("METRIC", objective), encoding="utf-8")
        done = forked("search", "run", str(self.root / "lab.md"), timeout_s=DEADLINE_S)
        return done.returncode, f"{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEBOOK_WORKSPACE", str(root))
        fork_descriptions(patch)
        (root / "my_lab.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
        (root / "scalebook.toml").write_text('modules = ["my_lab"]\n', encoding="utf-8")
        (root / "lab.md").write_text(NOTEBOOK.replace("METRIC", "val_r2"), encoding="utf-8")
        made = Lab(root)
        prepared.open(made.workspace)
        trust(made.workspace)
        try:
            done = forked("notebook", "run", str(root / "lab.md"), timeout_s=DEADLINE_S)
            assert done.returncode == 0, done.stderr
            yield made
        finally:
            clear(made.workspace)


def test_the_best_value_is_the_best_by_config_torchmetrics_and_name(lab: Lab) -> None:
    for run in lab.runs():
        for metric, choose in {"val_loss": min, "val_acc": max, "val_r2": max, "val_gain": max}.items():
            assert run.metrics[names.best(metric)] == choose(lab.reader.curve(run.id, metric).values), metric


def test_a_comparison_says_what_is_better_and_who_says_so(lab: Lab) -> None:
    assert lab.direction("r2") == Direction(False, "recorded")
    assert lab.direction("gain") == Direction(False, "recorded")  # as torchmetrics says; its name tells nothing
    assert lab.direction("odd") == Direction(True, "guess")


def test_a_cell_without_a_metric_takes_one_that_its_runs_have(lab: Lab) -> None:
    nb = lab.stored.notebook
    (cell,) = (cell for cell in nb.comparisons() if cell.name == "unnamed")
    made = compare(lab.reader, "lab.md", nb, cell, lab.description)
    assert (made.metric, made.rows[0].best is not None) == ("val_loss", True)


def test_a_form_offers_what_runs_have_logged_the_monitored_metric_first(lab: Lab) -> None:
    experiment = lab.stored.notebook.experiments()[0].experiment(lab.description)
    assert offered([experiment], lab.runs()) == [
        "val_r2", "val_loss", "val_acc", "val_gain", "val_odd", "train/loss",
    ]  # fmt: skip
    assert offered([experiment], [])[0] == "val_r2"


@pytest.mark.parametrize("name", ["odd", "good"])
def test_a_guess_is_said_and_a_persons_word_stands_in_the_cell(lab: Lab, name: str) -> None:
    nb = lab.stored.notebook
    cell = next(cell for cell in nb.cells if isinstance(cell, ComparisonCell | ClaimCell) and cell.name == name)
    turned = edit.say_better(nb, cell, "val_odd", "max")
    found = next(one for one in turned.cells if getattr(one, "name", "") == name)
    assert isinstance(found, ComparisonCell | ClaimCell)
    assert (found.metric, found.goal) == ("val_odd", "max")
    assert found.source == cell.source.replace("metric: val_odd", "metric: {val_odd: max}")
    if isinstance(found, ComparisonCell):
        assert compare(lab.reader, "lab.md", turned, found, lab.description).direction == Direction(False, "said")


def test_a_claim_takes_the_best_value_in_the_direction_that_it_says(lab: Lab) -> None:
    nb = lab.stored.notebook
    (cell,) = nb.claims()
    guessed = judge_all(EvidenceReader(lab.workspace, lab.reader, "lab.md", nb, lab.description))[cell.name]
    assert guessed.directions == {"val_odd": Direction(True, "guess")}
    assert (
        "For val_odd, lower is better. This is a guess, because neither the config nor the metric says which "
        "direction is better. If the opposite is true, set metric: {val_odd: max}."
    ) in text(guessed)
    nb = edit.say_better(nb, cell, "val_odd", "max")
    said = judge_all(EvidenceReader(lab.workspace, lab.reader, "lab.md", nb, lab.description))[cell.name]
    amounts = [[one.value for one in rows.rows[0].evidence.amounts.values()] for rows in (guessed, said)]
    curves = [lab.reader.curve(run, "val_odd").values for run in said.rows[0].evidence.run_ids]
    assert amounts == [[min(curve) for curve in curves], [max(curve) for curve in curves]]


def test_an_objective_that_no_run_of_the_experiment_has_logged_is_refused_before_the_start(lab: Lab) -> None:
    code, said = lab.search("val_mae")
    assert code == 2
    assert "objective: is val_mae; its runs have not logged val_mae; while validating they logged val_acc" in said
    assert list(lab.workspace.studies.iterdir()) == [] if lab.workspace.studies.exists() else True


def test_an_objective_whose_other_values_are_better_is_refused_with_what_to_write(lab: Lab) -> None:
    code, said = lab.search("val_gain")
    assert code == 2
    assert (
        "in the wrong direction, because higher is better according to the runs of own. Set objective: {val_gain: max}."
    ) in said


def test_a_search_over_a_metric_of_ones_own_takes_the_best(lab: Lab) -> None:
    code, said = lab.search("val_r2")
    assert code == 0, said
    trials = lab.reader.runs(notebook="lab.md", where=f"tags.`{names.TAG_TRIAL}` != ''")
    best = max(run.metrics["best/val_r2"] for run in trials)
    assert f"  {best:.4g}  " in said.partition("the best of 2:")[2].splitlines()[2]


def test_a_run_that_is_turned_has_the_other_best_value_everywhere(lab: Lab) -> None:
    run = lab.runs()[0]
    curve = lab.reader.curve(run.id, "val_odd").values
    assert run.metrics["best/val_odd"] == min(curve) != max(curve)
    set_direction(lab.reader, [run], "val_odd", "max")
    turned = lab.reader.run(run.id)
    assert turned.metrics["best/val_odd"] == max(curve)
    assert compare_runs(lab.reader, [run.id], "val_odd").direction == Direction(False, "said")
    set_direction(lab.reader, [turned], "val_odd", "min")
    assert lab.reader.run(run.id).metrics["best/val_odd"] == min(curve)
