"""What MLflow's store has of a run of a person's own module, for each kind of strategy: few metrics, all parameters."""

from collections.abc import Iterator
from typing import Any

import pytest

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.describing import fork_descriptions, forked

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
DEADLINE_S = 250.0  # of a busy machine; 25 s on a free one
MOST = 20
"""Metrics of a run whose model logs three, MLflow's system metrics apart, at any number of workers."""

MODULE = """
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Linear(2, 2)

    def on_train_start(self):
        time.sleep(0.4)  # the machine is looked at first after 0.25 s

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.line(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        out = self.line(batch[0])
        self.log("val_loss", torch.nn.functional.cross_entropy(out, batch[1]))
        self.log("val_acc", (out.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Points(lightning.LightningDataModule):
    def train_dataloader(self):
        points = torch.randn(512, 2, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(points, (points[:, 0] > points[:, 1]).long()), 16)

    val_dataloader = train_dataloader
"""
STRATEGIES = {
    "single": "auto",
    "ddp": "ddp, devices: 2",
    "async": "{class_path: AsyncPS, init_args: {workers: 2}}",
    "sync": "{class_path: AsyncPS, init_args: {workers: 2, rule: sync}}",
    "virtual": "{class_path: AsyncPS, init_args: {workers: 16, host: virtual, clock: {gradient_s: 0.01}}}",
}
EXPERIMENT = """
```yaml experiment={name}
config:
  model: few_lab.Net
  data: few_lab.Points
  trainer: {{max_epochs: 3, accelerator: cpu, log_every_n_steps: 5, strategy: {strategy}}}
```
"""
OWN = {"train_loss", "val_loss", "val_acc", "best/val_loss", "best/val_acc"}
OURS = {
    "single": {"compute"},
    "ddp": {"compute", "communicate"},
    "async": {"compute", "communicate", "wait"},
    "sync": {"compute", "communicate", "wait"},
    "virtual": {"compute"},
}
"""Parts of the time that a kind of run has something to tell of; a busy machine may have others too. The time in which
data are fetched is what they leave."""


@pytest.fixture(scope="module")
def recorded(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    prepared: Prepared,
) -> Iterator[RunReader]:
    """With a run of each strategy that the chosen tests ask for."""
    cases: list[Any] = [item for item in request.session.items if item.path == request.path]
    chosen = dict.fromkeys(case.callspec.params["run"] for case in cases)
    root = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEBOOK_WORKSPACE", str(root))
        fork_descriptions(patch)
        (root / "few_lab.py").write_text(MODULE, encoding="utf-8")
        (root / "scalebook.toml").write_text('modules = ["few_lab"]\n', encoding="utf-8")
        cells = [
            EXPERIMENT.format(name=name, strategy=strategy) for name, strategy in STRATEGIES.items() if name in chosen
        ]
        (root / "few.md").write_text("".join(["# Few\n", *cells]), encoding="utf-8")
        workspace = Workspace(root)
        prepared.open(workspace)
        trust(workspace)
        try:
            done = forked("notebook", "run", str(root / "few.md"), timeout_s=DEADLINE_S)
            assert done.returncode == 0, done.stderr
            yield RunReader(workspace.tracking_uri())
        finally:
            clear(workspace)


@pytest.fixture(
    params=[pytest.param(name, marks=() if name == "async" else pytest.mark.thorough) for name in STRATEGIES]
)
def run(request: pytest.FixtureRequest, recorded: RunReader) -> RunRecord:
    (found,) = recorded.runs(notebook="few.md", cell=request.param)
    return found


def stored(reader: RunReader, run: RunRecord) -> dict[str, float]:
    """As MLflow itself shows them, with nothing that our reader adds."""
    return dict(reader.client.get_run(run.id).data.metrics)


def test_a_run_has_few_metrics_at_any_number_of_workers(recorded: RunReader, run: RunRecord) -> None:
    found = stored(recorded, run)
    counted = {name for name in found if not name.startswith(names.SYSTEM)}
    assert len(counted | {*names.COMPARED}) <= MOST, sorted(counted)
    assert counted >= OWN
    ours = counted - OWN
    assert names.UPDATES_PER_SECOND in ours, "people look for it first"
    assert {name for name in ours if not name.startswith(("perf/", "ps/"))} - {*names.AXES} == {names.TRAIN_LOSS}
    assert {name for name in found if name.startswith("worker_")} == set()
    assert {names.PARTS[part] for part in OURS[str(run.cell)]} <= ours


def test_none_of_them_is_0_throughout_or_follows_from_others(recorded: RunReader, run: RunRecord) -> None:
    found = stored(recorded, run)
    assert not {*names.UNRECORDED, names.UPDATES, "epoch"} & found.keys()
    for name in found:
        if name.startswith(("perf/", "ps/")) or name in names.AXES:
            values = [point.value for point in recorded.client.get_metric_history(run.id, name)]
            assert any(values) or name in names.TOLD, name


def test_what_follows_from_others_is_there_for_pages_and_claims(recorded: RunReader, run: RunRecord) -> None:
    metrics = recorded.run(run.id).metrics
    trained_s = metrics[names.SAMPLES] / metrics[names.SAMPLES_PER_SECOND]
    assert metrics[names.UPDATES_PER_SECOND] == pytest.approx(metrics[names.UPDATES] / trained_s)
    (listed,) = (one for one in recorded.listed(100) if one.id == run.id)
    assert listed.metrics[names.UPDATES_PER_SECOND] == metrics[names.UPDATES_PER_SECOND]
    assert metrics[names.final("val_loss")] == metrics["val_loss"]
    assert listed.metrics[names.UPDATES] == metrics[names.UPDATES] > 0
    if names.WAIT_SHARE in metrics or run.cell == "single":
        assert sum(metrics.get(share, 0.0) for share in names.SHARES) == pytest.approx(1)
    curve = recorded.curve(run.id, names.UPDATES_PER_SECOND)
    assert curve.updates == recorded.curve(run.id, names.SAMPLES_PER_SECOND).updates
    assert curve.values[-1] == pytest.approx(metrics[names.UPDATES_PER_SECOND])
    if names.BYTES not in metrics:
        assert run.cell == "single"
        assert names.PULLED_PER_UPDATE not in metrics
    else:
        moved = metrics[names.PUSHED_PER_UPDATE] + metrics[names.PULLED_PER_UPDATE]
        assert moved * metrics[names.UPDATES] == pytest.approx(metrics[names.BYTES])


def test_a_short_run_says_what_it_took_of_its_machine(recorded: RunReader, run: RunRecord) -> None:
    found = stored(recorded, run)
    assert found[f"{names.SYSTEM}system_memory_usage_megabytes"] > 50
    cpu = recorded.client.get_metric_history(run.id, f"{names.SYSTEM}cpu_utilization_percentage")
    assert max(point.value for point in cpu) > 0
    assert found[names.PEAK_MEMORY_MB] > 50


def test_every_run_has_all_parameters_that_charts_and_filters_take(run: RunRecord) -> None:
    """Its data set has no batch size in the config, and no strategy but AsyncPS has a rule."""
    several = run.cell != "single"
    assert {name: run.params.get(name) for name in ("batch_per_worker", "batch_global", "lr")} == {
        "batch_per_worker": "unknown", "batch_global": "unknown", "lr": "0.05",
    }  # fmt: skip
    assert run.params["workers"] == ("16" if run.cell == "virtual" else "2" if several else "1")
    assert run.params["clock"] == ("virtual" if run.cell == "virtual" else "real")
    assert run.params["rule"] == {"async": "async", "sync": "sync", "virtual": "async"}.get(str(run.cell), "none")
    assert run.params["strategy"] == (str(run.cell) if run.cell in ("single", "ddp") else "AsyncPS")
