"""Whether an advertisement is clicked: embedded categories and numbers, and a small dense net on them."""

import torch
import torch.nn.functional as F
from jsonargparse.typing import PositiveInt
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from typing_extensions import override

from scalebook.training.data.click_log import NUMBERS, ClickBatch, ClickLog
from scalebook.training.data.ngrams import PADDING
from scalebook.training.models.other_data import refuse_other_data
from scalebook.training.tracking.names import TRAIN_LOSS, VAL_AUC, VAL_LOSS


class ClickModel(LightningModule):
    """Predicts clicks: sums the categories' rows of one large table and feeds sum and numbers to a dense net.

    The hashing trick (Weinberger et al. 2009) before an embedding and layers (the deep part of Cheng et al. 2016, "Wide
    and deep learning for recommender systems"). The loss is the log loss of the label, nats. A step touches the rows
    of its batch's categories only.

    Args:
        rows: Rows of the table; categories whose hashes collide share a row.
        width: Numbers in a row.
        hidden: Units of the hidden layer.
        sparse: Sparse gradients: only the rows of the batch's categories. Needs torch.optim.SGD without momentum or
            Adagrad, in one process or under AsyncPS, which sends only these rows.
    """

    metrics = (VAL_AUC, VAL_LOSS)

    def __init__(
        self,
        rows: PositiveInt = 65_536,
        width: PositiveInt = 16,
        hidden: PositiveInt = 64,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.table = nn.EmbeddingBag(int(rows) + 1, int(width), mode="sum", sparse=sparse, padding_idx=PADDING)
        nn.init.normal_(self.table.weight, std=float(width) ** -0.5)
        with torch.no_grad():
            self.table.weight[PADDING] = 0
        self.net = nn.Sequential(nn.Linear(int(width) + NUMBERS, int(hidden)), nn.ReLU(), nn.Linear(int(hidden), 1))

    @override
    def configure_model(self) -> None:
        refuse_other_data(self, ClickLog, "clicks", "Choose ClickLog.")

    @override
    def forward(self, numbers: Tensor, hashes: Tensor) -> Tensor:
        """The log-odds of a click, float [batch]."""
        rows = torch.where(hashes == PADDING, PADDING, 1 + hashes % (self.table.num_embeddings - 1))
        logits: Tensor = self.net(torch.cat([self.table(rows), numbers], 1))
        return logits.squeeze(1)

    @override
    def training_step(self, batch: ClickBatch, batch_idx: int) -> Tensor:
        numbers, hashes, clicked = batch
        loss = F.binary_cross_entropy_with_logits(self(numbers, hashes), clicked)
        self.log(TRAIN_LOSS, loss, batch_size=len(clicked))
        return loss

    @override
    def validation_step(self, batch: ClickBatch, batch_idx: int) -> None:
        numbers, hashes, clicked = batch
        odds = self(numbers, hashes)
        loss = F.binary_cross_entropy_with_logits(odds, clicked)
        self.log_dict({VAL_LOSS: loss, VAL_AUC: area(odds, clicked)}, batch_size=len(clicked), sync_dist=True)

    @override
    def predict_step(self, batch: ClickBatch, batch_idx: int) -> Tensor:
        """The probability of a click, float [batch]."""
        numbers, hashes, _ = batch
        probabilities: Tensor = self(numbers, hashes).sigmoid()
        return probabilities


def area(scores: Tensor, clicked: Tensor) -> Tensor:
    """Area under the receiver's curve: the share of pairs of a click and none in which the click scores higher.

    Equal scores count one half; 0.5 where there is no such pair (Mann and Whitney's U over the number of pairs).
    """
    _, place, count = scores.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    ranks = (count.cumsum(0) - (count - 1) / 2)[place].double()
    clicks = clicked.double().sum()
    pairs = clicks * (len(clicked) - clicks)
    above = ranks[clicked > 0].sum() - clicks * (clicks + 1) / 2
    return (above / pairs if pairs else torch.tensor(0.5, device=scores.device)).float()
