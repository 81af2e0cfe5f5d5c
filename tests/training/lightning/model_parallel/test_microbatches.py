"""How a batch is divided, and what its parts log together."""

import re
from typing import Any

import pytest
import torch

from scalebook.training.lightning.model_parallel.microbatches import divide


def test_tensors_are_divided_by_samples() -> None:
    batch = {"inputs": torch.arange(10).view(5, 2), "more": [torch.arange(5), None, torch.tensor(7)]}
    parts = divide(batch, 2)
    assert [share for _, share in parts] == [3 / 5, 2 / 5]
    assert [part["more"][0].tolist() for part, _ in parts] == [[0, 1, 2], [3, 4]]
    assert [part["inputs"].shape for part, _ in parts] == [(3, 2), (2, 2)]
    assert all(part["more"][1] is None and int(part["more"][2]) == 7 for part, _ in parts)
    assert len(divide(batch, 8)) == 5, "none is empty"


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            [torch.zeros(4), ["a", "b", "c", "d"]],
            "this batch contains a str. Use a collate_fn that returns only tensors",
        ),
        ([torch.zeros(4), torch.zeros(3)], "this batch contains tensors of [3, 4] samples"),
        ([torch.tensor(1.0)], "this batch contains tensors of [] samples"),
    ],
)
def test_what_cannot_be_divided_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        divide(batch, 2)
