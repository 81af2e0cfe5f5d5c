from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli.model_making import parameters
from scalebook.training.tracking.directions import direction
from scalebook.training.tracking.names import TRAIN_LOSS, VAL_LOSS, VAL_MRR, VAL_RECALL_10, main_metric
from scalebook.training.zoo.data.docstrings import RankingBatch, RankingPairs
from scalebook.training.zoo.data.ngrams import bags
from scalebook.training.zoo.models import Ranker
from scalebook.training.zoo.models.ranker import ranks
from tests.training.zoo.models.fitting import fit

COLOURS = ("red", "green", "blue", "yellow")
THINGS = ("house", "river", "engine", "letter", "garden")


def pairs() -> RankingPairs:
    """Query and document say the same in different words, as no two pairs do."""
    both = [(colour, thing) for colour in COLOURS for thing in THINGS]
    queries = bags([f"{colour} {thing}" for colour, thing in both])
    return RankingPairs(queries, bags([f"{colour.upper()[::-1]} {thing[::-1]}" for colour, thing in both]))


def whole() -> RankingBatch:
    return pairs().__getitems__(list(range(20)))


def test_ranks_count_those_that_score_higher() -> None:
    scores = torch.tensor([[3.0, 5.0, 1.0], [0.0, 2.0, 1.0], [4.0, 4.0, 4.0]])
    assert ranks(scores).tolist() == [2.0, 1.0, 2.0]


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Ranker(rows=50, width=8).eval()
    queries, documents = whole()
    wider = torch.nn.functional.pad(documents, (0, 7))
    assert torch.equal(model(queries, documents), model(queries, wider))


def test_an_untrained_one_is_at_chance() -> None:
    torch.manual_seed(0)
    cosines = Ranker(rows=5_000, width=256).eval()(*whole())
    assert cosines.abs().max() < 0.5
    assert ranks(cosines).mean().item() == pytest.approx(10.5, abs=3)


@pytest.mark.parametrize("sparse", [False, True])
def test_learns_what_belongs_together(sparse: bool, tmp_path: Path) -> None:
    class Trained(Ranker):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
            return kind(self.parameters(), lr=0.05)

    torch.manual_seed(0)
    model = Trained(rows=500, width=16, dropout=0.0, sparse=sparse)
    loader: DataLoader[RankingBatch] = DataLoader(pairs(), batch_size=20, collate_fn=lambda batch: batch)
    trainer = Trainer(
        max_epochs=12,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(model, loader, loader)
    metrics = trainer.callback_metrics
    assert metrics[VAL_MRR] > 0.95
    assert metrics[VAL_RECALL_10] == 1
    assert metrics[VAL_LOSS] < 0.2
    assert metrics[TRAIN_LOSS] < 0.5
    assert model.predict_step(whole(), 0)[:, 0].tolist() == list(range(20))


def test_gradients_of_a_sparse_one_have_the_rows_of_the_batch() -> None:
    torch.manual_seed(0)
    dense, sparse = Ranker(rows=500, dropout=0.0), Ranker(rows=500, dropout=0.0, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    for model in (dense, sparse):
        model._loss(model(*whole())).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(dense.parameters(), sparse.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert other.grad.is_sparse
        torch.testing.assert_close(one.grad, other.grad.to_dense())
        assert (one.grad.abs().sum(1) > 0).sum() <= len(other.grad.coalesce().indices()[0]) < 400


def test_its_tables_are_told_without_training() -> None:
    given = {
        "class_path": "scalebook.training.zoo.models.Ranker",
        "init_args": {"rows": 64, "width": 4, "sparse": True},
    }
    assert [one.sparse for one in parameters({"model": given}).parameters] == [True, True, True]
    given["init_args"] = {"rows": 64, "width": 4}
    assert not any(one.sparse for one in parameters({"model": given}).parameters)


def test_images_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data: Digits has no queries and documents, but Ranker learns from them\."):
        fit(tmp_path, {"class_path": "scalebook.training.zoo.models.Ranker"})


def test_runs_are_judged_by_the_rank() -> None:
    assert main_metric([TRAIN_LOSS, VAL_LOSS, VAL_MRR, VAL_RECALL_10]) == VAL_MRR
    assert not direction(VAL_MRR).lower
    assert not direction(VAL_RECALL_10).lower


def test_an_optimizer_for_tables_alone_is_refused_for_dense_layers(tmp_path: Path) -> None:
    optimizer = {"class_path": "torch.optim.SparseAdam", "init_args": {"lr": 0.1}}
    with pytest.raises(ConfigError) as caught:
        fit(tmp_path, {"class_path": "scalebook.training.zoo.models.MLPClassifier"}, optimizer=optimizer)
    assert (caught.value.problem.code, caught.value.problem.key) == ("optimizer-not-supported", "optimizer")
