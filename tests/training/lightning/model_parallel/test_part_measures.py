"""What a worker of a split model holds and sends: measured, and by closed forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.utils.data import DataLoader

from scalebook.training.base.files import records
from scalebook.training.lightning import ModelParallel
from scalebook.training.lightning.model_parallel.part_measures import PartMeasures
from scalebook.training.pricing.part_record import PartRecord
from tests.training.lightning.async_ps.small import data, trainer
from tests.training.lightning.model_parallel.split_model import adam, held_out, pair
from tests.training.lightning.model_parallel.staged_model import Staged

pytestmark = pytest.mark.long
BATCH, WIDTH, INNER = 8, 16, 32


class Even(Staged):
    """Widths that workers share equally: a layer that gathers, a normalisation, a feed-forward pair, an output."""

    def __init__(self, optimizer: Any = adam) -> None:
        super().__init__(optimizer)
        self.net = nn.Sequential(
            nn.Linear(5, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH),
            nn.Linear(WIDTH, 4),
        )  # fmt: skip

    def parallel_plan(self) -> dict[str, ParallelStyle]:
        return {
            "net.0": ColwiseParallel(output_layouts=Replicate()),
            "net.2": ColwiseParallel(),
            "net.4": RowwiseParallel(),
            "net.5": RowwiseParallel(input_layouts=Replicate()),
        }

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.net(inputs)
        return out

    def stages(self) -> list[nn.Module]:
        return list(self.net)


class Told(Callback):
    """Brings the record back from worker 0."""

    def __init__(self) -> None:
        self.text = ""

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        parts = trainer.strategy.parts
        self.text = json.dumps(None if parts is None else parts.content())


def record(folder: Path, strategy: ModelParallel, workers: int, **settings: Any) -> PartRecord:
    told = Told()
    made = trainer(
        folder, strategy, workers, **{"max_steps": 2, "max_epochs": 1, "num_sanity_val_steps": 0, **settings}
    )
    made.callbacks.append(told)  # type: ignore[attr-defined]  # made by Lightning's callback connector
    made.fit(pair(kind=Even), DataLoader(data(), BATCH, shuffle=True), held_out())
    return records.parse(Path("parts.json"), told.text.encode(), PartRecord)


def passed(of: PartRecord) -> dict[tuple[str, str], tuple[float, float]]:
    return {(row.collective, row.layer): (row.nbytes, row.sent) for row in of.passed}


def test_bytes_of_a_tensor_split_are_the_closed_forms(tmp_path: Path) -> None:
    real = record(tmp_path, ModelParallel(tensor=2), 2)
    found, features, inner = passed(real), 4.0 * BATCH * WIDTH, 4.0 * BATCH * 4
    assert found["all-reduce", "net.4"] == (features, features), "4 b d bytes forward; 2 (n - 1) / n of them are sent"
    assert found["all-reduce", "net.2"] == (features, features), "and as many backward"
    assert found["all-gather", "net.0"] == (features, features / 2)
    assert found["all-reduce", "net.5"] == (inner, inner)
    assert found["all-gather", "net.5"] == (features, features / 2), "gradients of inputs that were taken apart"
    assert len(found) == 5, "inputs of the model have no gradient"


def test_bytes_of_shards_are_those_of_each_unit_twice_and_once(tmp_path: Path) -> None:
    real = record(tmp_path, ModelParallel(shard=2), 2)
    pair_bytes = 4 * (WIDTH * INNER + INNER)
    assert passed(real)["all-gather", "net.2"] == (2 * pair_bytes, pair_bytes), "for the forward and the backward pass"
    assert passed(real)["reduce-scatter", "net.2"] == (pair_bytes, pair_bytes / 2)
    whole = sum(layer.nbytes for layer in real.layers)
    assert real.workers[0].sent == 3 * whole / 2
    assert real.sent == 3 * whole


def test_stages_say_why_they_wait(tmp_path: Path) -> None:
    real = record(tmp_path, ModelParallel(stages=2, microbatches=4, schedule="gpipe"), 2)
    assert sum(row.nbytes for row in real.passed) == 2 * 4 * BATCH * INNER
    assert [worker.stage for worker in real.workers] == [0, 1]
    for worker in real.workers:
        reasons = (worker.bubble, worker.uneven, worker.link)
        assert all(share is not None and share >= 0 for share in reasons)
        assert 0 <= sum(share or 0 for share in reasons) < 1
    assert real.idle("bubble")


@pytest.mark.thorough
def test_accumulated_batches_count_and_only_one_step_of_an_epoch_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tmp_path / "steps"
    begin = PartMeasures.begin_step

    def noted(self: PartMeasures) -> None:
        with steps.open("a") as file:
            file.write("x")
        begin(self)

    monkeypatch.setattr(PartMeasures, "begin_step", noted)
    once = record(tmp_path, ModelParallel(tensor=2), 2, max_steps=-1, max_epochs=2)
    assert steps.read_text() == "xxxx", "two workers, two epochs"
    twice = record(tmp_path, ModelParallel(tensor=2), 2, accumulate_grad_batches=2)
    assert twice.workers[0].sent == 2 * once.workers[0].sent
    assert passed(twice)["all-reduce", "net.4"][0] == 2 * passed(once)["all-reduce", "net.4"][0]
