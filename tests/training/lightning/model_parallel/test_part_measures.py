"""What a worker of a split model holds and sends: measured, by closed forms, and as the clock prices it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from scalebook.training.base.files import records
from scalebook.training.lightning import ModelParallel
from scalebook.training.lightning.model_parallel.part_measures import PartMeasures
from scalebook.training.pricing.part_record import PartRecord
from tests.training.lightning.model_parallel.split_model import Pair, adam, pair
from tests.training.lightning.model_parallel.staged_model import Staged
from tests.training.lightning.model_parallel.test_sim_parts import BATCH, fit, virtual

pytestmark = pytest.mark.long
WIDTH, INNER = 16, 32


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


def record(folder: Path, strategy: Any, workers: int, **settings: Any) -> PartRecord:
    told, settings = Told(), {"max_steps": 2, "max_epochs": 1, **settings}
    fit(folder, strategy, workers, pair(kind=Even), callbacks=[told], **settings)
    return records.parse(Path("parts.json"), told.text.encode(), PartRecord)


def passed(of: PartRecord) -> dict[tuple[str, str], tuple[float, float]]:
    return {(row.collective, row.layer): (row.nbytes, row.sent) for row in of.passed}


def both(folder: Path, workers: int, **arguments: Any) -> tuple[PartRecord, PartRecord]:
    real = record(folder, ModelParallel(**arguments), workers)
    priced = record(folder, virtual(**arguments), 1 if arguments else workers)
    assert (real.is_priced, priced.is_priced, real.words) == (False, True, priced.words)
    assert len(real.workers) == len(priced.workers) == workers
    key = lambda layer: layer.name  # noqa: E731
    assert sorted(real.layers, key=key) == sorted(priced.layers, key=key)
    for one, other in zip(real.workers, priced.workers, strict=True):
        assert (one.parameters, one.gradients, one.sent) == (other.parameters, other.gradients, other.sent)
        assert one.state == pytest.approx(other.state, rel=0.03), "Adam's counts of steps are whole in each worker"
        assert other.activations <= one.activations < 2 * other.activations + 1000, "what the loss keeps is not priced"
    return real, priced


def test_bytes_of_a_tensor_split_are_the_closed_forms_and_the_price(tmp_path: Path) -> None:
    real, priced = both(tmp_path, 2, tensor=2)
    assert passed(real) == passed(priced)
    found, features, inner = passed(real), 4.0 * BATCH * WIDTH, 4.0 * BATCH * 4
    assert found["all-reduce", "net.4"] == (features, features), "4 b d bytes forward; 2 (n - 1) / n of them are sent"
    assert found["all-reduce", "net.2"] == (features, features), "and as many backward"
    assert found["all-gather", "net.0"] == (features, features / 2)
    assert found["all-reduce", "net.5"] == (inner, inner)
    assert found["all-gather", "net.5"] == (features, features / 2), "gradients of inputs that were taken apart"
    assert len(found) == 5, "inputs of the model have no gradient"


def test_bytes_of_shards_are_those_of_each_unit_twice_and_once(tmp_path: Path) -> None:
    real, priced = both(tmp_path, 2, shard=2)
    assert passed(real) == passed(priced)
    pair_bytes = 4 * (WIDTH * INNER + INNER)
    assert passed(real)["all-gather", "net.2"] == (2 * pair_bytes, pair_bytes), "for the forward and the backward pass"
    assert passed(real)["reduce-scatter", "net.2"] == (pair_bytes, pair_bytes / 2)
    whole = sum(layer.nbytes for layer in real.layers)
    assert real.workers[0].sent == 3 * whole / 2
    assert real.sent == 3 * whole


@pytest.mark.thorough
def test_bytes_of_both_splits_add_up(tmp_path: Path) -> None:
    real, priced = both(tmp_path, 4, tensor=2, shard=2)
    assert passed(real) == passed(priced)


def test_stages_say_why_they_wait(tmp_path: Path) -> None:
    real, priced = both(tmp_path, 2, stages=2, microbatches=4, schedule="gpipe")
    assert sum(row.nbytes for row in real.passed) == sum(row.nbytes for row in priced.passed) == 2 * 4 * BATCH * INNER
    assert [worker.stage for worker in real.workers] == [0, 1]
    for worker in real.workers:
        reasons = (worker.bubble, worker.uneven, worker.link)
        assert all(share is not None and share >= 0 for share in reasons)
        assert 0 <= sum(share or 0 for share in reasons) < 1
    assert real.idle("bubble")
    assert priced.idle("bubble")


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
    assert record(tmp_path, virtual(tensor=2), 1, accumulate_grad_batches=2).workers[0].sent == twice.workers[0].sent


class Failing(Pair):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1:
            raise RuntimeError("no more")
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_step_that_fails_or_is_left_out_leaves_torch_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no more"):
        fit(tmp_path, virtual(tensor=2), 1, pair(kind=Failing))
    assert torch._C._len_torch_dispatch_stack() == 0

    class Skipping(Pair):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

    strategy = virtual(tensor=2)
    fit(tmp_path, strategy, 1, pair(kind=Skipping), max_steps=2)
    assert strategy.parts is not None
    assert torch._C._len_torch_dispatch_stack() == 0
