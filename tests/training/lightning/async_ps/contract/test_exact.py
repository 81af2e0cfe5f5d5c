"""Synchronous strategies give the weights of one process with the batches of all workers put together."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch.optim import SGD, Adam

from tests.training.lightning.async_ps.contract.cases import Case, exact, fitted, single
from tests.training.lightning.async_ps.contract.models import GAN, Manual, Odd, Plain
from tests.training.lightning.async_ps.small import weights


def momentum(model: LightningModule) -> Any:
    return SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(model: LightningModule) -> Any:
    return Adam(model.parameters(), lr=0.01)


PLAIN: dict[str, Any] = {"precision": "64-true"}
SETTINGS = [
    PLAIN,
    PLAIN | {"accumulate_grad_batches": 2},
    PLAIN | {"gradient_clip_val": 0.05},
    PLAIN | {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
]


@pytest.mark.each_value
@exact
@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "accumulated", "clipped by norm", "clipped by value"])
def test_two_workers_are_one_process_with_the_twofold_batch(
    case: Case, settings: dict[str, Any], tmp_path: Path
) -> None:
    expected = single(tmp_path, Plain(momentum).double(), **settings)
    model = Plain(momentum).double()
    fitted(case, tmp_path, model, **settings)
    torch.testing.assert_close(weights(model), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.each_value
@exact
@pytest.mark.parametrize("kind", [lambda: Plain(adam), Manual, GAN, Odd], ids=["adam", "manual", "gan", "odd"])
def test_so_they_are_with_every_kind_of_model(case: Case, kind: type[Plain], tmp_path: Path) -> None:
    expected = single(tmp_path, kind().double(), **PLAIN)
    model = kind().double()
    fitted(case, tmp_path, model, {"unused": True}, **PLAIN)
    torch.testing.assert_close(weights(model), expected, rtol=1e-8, atol=1e-10)
