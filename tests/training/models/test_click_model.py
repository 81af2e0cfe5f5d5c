from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scalebook.training.data.click_log import CATEGORIES, NUMBERS
from scalebook.training.errors import ConfigError
from scalebook.training.models import ClickModel
from scalebook.training.models.click_model import area
from scalebook.training.tracking.directions import direction
from scalebook.training.tracking.names import TRAIN_LOSS, VAL_AUC, VAL_LOSS, main_metric
from tests.training.data.logs import written
from tests.training.models.fitting import fit

MODEL = {"class_path": "scalebook.training.models.ClickModel", "init_args": {"rows": 200, "width": 4, "hidden": 8}}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("log")
    arguments = {"file": str(written(folder, 600)), "batch_size": 32, "val_fraction": 0.25}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield {"class_path": "scalebook.training.data.ClickLog", "init_args": arguments}


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    scores, clicked = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert area(scores, clicked).item() == 0.75
    assert area(-scores, clicked).item() == 0.25
    assert area(torch.zeros(4), clicked).item() == 0.5
    assert area(scores, torch.ones(4)).item() == 0.5
    torch.manual_seed(0)
    scores, clicked = torch.randint(5, (50,)).float(), torch.randint(2, (50,)).float()
    pairs = scores[clicked > 0].unsqueeze(1) - scores[clicked == 0]
    assert area(scores, clicked).item() == pytest.approx(((pairs.sign() + 1) / 2).mean().item())


def test_learns_which_are_clicked(log: dict[str, Any], tmp_path: Path) -> None:
    metrics = fit(tmp_path, MODEL, epochs=15, lr=0.02, data=log).trainer.callback_metrics
    assert metrics[VAL_AUC] > 0.9
    assert metrics[VAL_LOSS] < 0.4
    assert metrics[TRAIN_LOSS] < 0.4


def test_trains_with_a_parameter_server(log: dict[str, Any], tmp_path: Path) -> None:
    server = {"class_path": "scalebook.training.strategies.AsyncPS", "init_args": {"workers": 2}}
    metrics = fit(tmp_path, MODEL, 1, data=log, trainer={"strategy": server}).trainer.callback_metrics
    assert 0 < metrics[VAL_LOSS] < 2
    assert 0 <= metrics[VAL_AUC] <= 1


def test_gradients_of_a_sparse_one_have_the_rows_of_the_batch() -> None:
    torch.manual_seed(0)
    dense, sparse = ClickModel(rows=200), ClickModel(rows=200, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    batch = (torch.rand(3, NUMBERS), torch.randint(0, 2**31, (3, CATEGORIES)), torch.ones(3))
    for model in (dense, sparse):
        model.log = lambda *_, **__: None  # type: ignore[method-assign]
        model.training_step(batch, 0).backward()  # type: ignore[no-untyped-call]
    one, other = dense.table.weight.grad, sparse.table.weight.grad
    assert one is not None
    assert other is not None
    assert other.is_sparse
    torch.testing.assert_close(other.to_dense(), one)
    assert len(other.coalesce().indices()[0]) <= 3 * CATEGORIES


def test_a_missing_category_adds_nothing() -> None:
    torch.manual_seed(0)
    model = ClickModel(rows=50).eval()
    hashes = torch.zeros(1, CATEGORIES, dtype=torch.int64)
    logits = model.net(torch.cat([torch.zeros(1, 16), torch.ones(1, NUMBERS)], 1)).squeeze(1)
    assert torch.equal(model(torch.ones(1, NUMBERS), hashes), logits)


def test_other_data_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^data: Digits has no clicks, and ClickModel learns from them\. Choose Click"
    ):
        fit(tmp_path, MODEL)


def test_runs_are_judged_by_the_area() -> None:
    assert main_metric([TRAIN_LOSS, VAL_LOSS, VAL_AUC]) == VAL_AUC
    assert not direction(VAL_AUC).lower
