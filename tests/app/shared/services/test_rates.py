from typing import Any

import pytest

from scalebook.app.shared.services.experiment_summary import summary
from scalebook.app.shared.services.rates import rate_words, scaled_words
from scalebook.training.config.rate_scaling import rate_scaling
from scalebook.training.config.workload import workload
from tests.app.described import description
from tests.app.recorded import config


def words(given: dict[str, Any]) -> tuple[str, str]:
    load = workload(given, description())
    return scaled_words(load, rate_scaling(given)), rate_words(load)


@pytest.mark.parametrize(
    ("scaling", "said", "rate"),
    [
        ({"rule": "linear", "per": 8}, "0.001 per 8 → 0.004 at a batch of 32", "0.001 → 0.004"),
        (
            {"rule": "linear", "per": 8, "warmup_epochs": 1},
            "0.001 per 8 → 0.004 at a batch of 32, reached after 1 epoch",
            "0.001 → 0.004",
        ),
        (
            {"rule": "sqrt", "per": 8, "warmup_epochs": 2.5},
            "0.001 per 8 → 0.002 at a batch of 32, reached after 2.5 epochs",
            "0.001 → 0.002",
        ),
        (
            {"rule": "linear", "per": 3200, "warmup_epochs": 1},
            "0.001 per 3,200 → 1e-05 at a batch of 32",
            "0.001 → 1e-05",
        ),
        ({"rule": "none"}, "", "0.001"),
        (None, "", "0.001"),
        ("linear", "", "0.001"),
    ],
)
def test_what_the_batch_makes_of_the_rate(scaling: Any, said: str, rate: str) -> None:
    assert words({**config(), "lr_scaling": scaling}) == (said, rate)


def test_rates_and_batches_that_are_not_known() -> None:
    scaling = {"rule": "linear", "per": 8}
    assert words({"data": {"class_path": "Digits", "init_args": {"batch_size": 32}}, "lr_scaling": scaling})[0] != ""
    assert words({"lr_scaling": scaling})[0] == ""


def test_the_summary_says_both_rates() -> None:
    assert summary({**config(), "lr_scaling": {"rule": "linear", "per": 8}}, description()).optimizer == (
        "Adam, lr 0.001 → 0.004"
    )
