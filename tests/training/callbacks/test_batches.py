from typing import Any

import pytest
import torch

from scalebook.training.callbacks.batches import batch_size, loss_of


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(5, 2), 5),
        ((torch.zeros(4, 2), torch.zeros(3)), 4),
        ({"x": [torch.zeros(7)]}, 7),
        (["text", torch.zeros(2, 2)], 2),
        (torch.tensor(1.0), 1),
        ("text", 1),
        ([], 1),
    ],
)
def test_the_size_of_a_batch(batch: Any, size: int) -> None:
    assert batch_size(batch) == size


def test_the_loss_among_what_a_step_returns() -> None:
    loss = torch.tensor(2.0)
    assert loss_of({"loss": loss}) is loss
    assert loss_of(loss) is loss
    assert loss_of({"x": 1}) is None
    assert loss_of(None) is None
    assert loss_of(torch.zeros(2)) is None
