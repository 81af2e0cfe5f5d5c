"""A two-tower ranker: which document answers a query, from sums of embedded n-grams."""

from typing import Final, NoReturn

import torch
import torch.nn.functional as F
from jsonargparse.typing import ClosedUnitInterval, PositiveFloat, PositiveInt
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from typing_extensions import override

from scalebook.training.engine.rules import ArgumentError
from scalebook.training.tracking import names
from scalebook.training.zoo.data.docstrings import Docstrings, RankingBatch
from scalebook.training.zoo.data.ngrams import PADDING
from scalebook.training.zoo.models.other_data import refuse_other_data

AMONG_FIRST: Final = 10


class Ranker(LightningModule):
    """Two towers, for queries and documents, that sum the n-grams' rows of one large table and compare the sums.

    Huang et al. 2013 ("Learning deep structured semantic models", section 3), with a table in place of layers. A
    document's score is the cosine between the sums of document and query, in which each tower weights each n-gram. The
    loss is the cross-entropy of the right document among the documents of the batch, so a larger batch is a harder
    task. To compare batch sizes, compare validation ranks, not losses. A step touches only the rows of its batch's
    n-grams.

    Args:
        rows: Number of rows of the table. N-grams whose hashes collide share a row.
        width: Number of values in a row.
        temperature: Divisor of the cosines before the softmax. A smaller temperature makes the softmax sharper.
        dropout: Share of n-grams dropped from a text during training, so that a few n-grams cannot identify a document.
        sparse: Use sparse gradients, which contain only the rows of the batch's n-grams. This needs torch.optim.SGD
            without momentum, SparseAdam or Adagrad, in one process or under AsyncPS, which then sends only these rows.
    """

    metrics = (names.VAL_MRR, names.VAL_RECALL_10, names.VAL_LOSS)

    def __init__(
        self,
        rows: PositiveInt = 65_536,
        width: PositiveInt = 128,
        temperature: PositiveFloat = 0.1,
        dropout: ClosedUnitInterval = 0.5,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.temperature, self.dropout = float(temperature), float(dropout)
        self.table = nn.EmbeddingBag(int(rows) + 1, int(width), mode="sum", sparse=sparse, padding_idx=PADDING)
        self.weights = nn.ModuleList(_ones(int(rows) + 1, sparse) for _ in ("queries", "documents"))
        nn.init.normal_(self.table.weight, std=float(width) ** -0.5)
        with torch.no_grad():
            self.table.weight[PADDING] = 0

    @override
    def configure_model(self) -> None:
        refuse_other_data(self, Docstrings, "queries and documents", "Choose Docstrings.")

    def parallel_plan(self) -> NoReturn:
        """ConfigError: there is no such plan."""
        raise ArgumentError(
            "model-not-supported",
            "tensor",
            "Ranker sums a few rows of one table for each text, but torch cannot split a sum of rows",
            "Set tensor: 1, or use AsyncPS with sparse: true. Workers then hold and send only the rows they read.",
        )

    def stages(self) -> NoReturn:
        """ConfigError: there are none."""
        raise ArgumentError(
            "model-not-supported",
            "stages",
            "Ranker has only one table, and its loss compares all texts of a batch, but microbatches separate texts",
            "Set stages: 1, or use AsyncPS with sparse: true. Workers then hold and send only the rows they read.",
        )

    @override
    def forward(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Cosines, float [queries, documents]; both are hashes [texts, n-grams], padded with 0."""
        of_queries, of_documents = self.weights
        return self._tower(queries, of_queries) @ self._tower(documents, of_documents).T

    @override
    def training_step(self, batch: RankingBatch, batch_idx: int) -> Tensor:
        loss = self._loss(self(*batch))
        self.log(names.TRAIN_LOSS, loss, batch_size=len(batch[0]))
        return loss

    @override
    def validation_step(self, batch: RankingBatch, batch_idx: int) -> None:
        self.log_dict(self._evaluate(batch), batch_size=len(batch[0]), sync_dist=True)

    @override
    def predict_step(self, batch: RankingBatch, batch_idx: int) -> Tensor:
        """The best documents of the batch for each query, best first: int64 [queries, 10]."""
        scores: Tensor = self(*batch)
        return scores.topk(min(AMONG_FIRST, scores.shape[1])).indices

    def _tower(self, texts: Tensor, weights: nn.Module) -> Tensor:
        left_out = texts == PADDING
        if self.training and self.dropout:
            left_out |= torch.rand(texts.shape, device=texts.device) < self.dropout
        rows = torch.where(left_out, PADDING, 1 + texts % (self.table.num_embeddings - 1))
        summed = self.table(rows, per_sample_weights=weights(rows).squeeze(-1))
        return F.normalize(summed, dim=1)

    def _loss(self, cosines: Tensor) -> Tensor:
        return F.cross_entropy(cosines / self.temperature, torch.arange(len(cosines), device=cosines.device))

    def _evaluate(self, batch: RankingBatch) -> dict[str, Tensor]:
        cosines = self(*batch)
        place = ranks(cosines)
        recall = (place <= AMONG_FIRST).float().mean()
        return {
            names.VAL_LOSS: self._loss(cosines),
            names.VAL_MRR: place.reciprocal().mean(),
            names.VAL_RECALL_10: recall,
        }


def ranks(scores: Tensor) -> Tensor:
    """The rank of document i for query i, from 1: float [queries]. Of equal scores the middle rank is taken."""
    right = scores.diagonal().unsqueeze(1)
    return 0.5 + (scores > right).sum(1) + 0.5 * (scores == right).sum(1)


def _ones(rows: int, sparse: bool) -> nn.Embedding:
    weights = nn.Embedding(rows, 1, sparse=sparse, padding_idx=PADDING)
    nn.init.ones_(weights.weight)
    return weights
