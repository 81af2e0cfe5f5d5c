"""What is committed of published splits is what the planner predicts; a miss stays a miss, with its cause."""

import json
from pathlib import Path

import pytest

from benchmarks.published_splits import (
    BLOCKS,
    P40_FLOPS,
    RUNS,
    SIZES,
    distbelief,
    implied_ratio,
    resnet101,
    rows,
    transformer,
)

KEPT = json.loads((Path(__file__).parents[2] / "docs/figures/published-splits.json").read_text())


def test_every_row_is_predicted_again() -> None:
    made = rows()
    assert [row["name"] for row in KEPT["rows"]] == [row.name for row in made]
    for kept, row in zip(KEPT["rows"], made, strict=True):
        assert (kept["source"], kept["cause"], kept["met"]) == (row.source, row.cause, row.met)
        assert (kept["published"], kept["predicted"]) == pytest.approx((row.published, row.predicted), rel=1e-9)
        assert row.met == (0.8 <= row.ratio <= 1.25) == (not row.cause)


def test_which_rows_are_missed() -> None:
    made = rows()
    assert len(made) == 26
    assert [row.name for row in made if not row.met] == [
        "GPipe, Transformer-48, 4 stages, 4 microbatches",
        "GPipe, Transformer-48, 8 stages, 4 microbatches",
        "Megatron-LM, strong, 4 GPUs",
        "Megatron-LM, strong, 8 GPUs",
    ]


def test_models_are_those_of_the_sources() -> None:
    """torchgpipe's balances sum up to all 370 modules; ResNet-101 has 7.8 G multiply-adds, the smallest GPT 1.2 G."""
    modules = list(resnet101())
    assert len(modules) == 370 == 4 + 11 * sum(count for _, count, _ in BLOCKS) + 3
    assert all(sum(balance) == len(modules) for *_, balance in RUNS.values())
    assert 2 * 7.8e9 / P40_FLOPS < sum(seconds for seconds, _ in modules) < 4 * 7.8e9 / P40_FLOPS
    for gpus, billions in ((1, 1.2), (2, 2.5), (4, 4.2), (8, 8.3)):
        parameters = sum(layer.parameter_bytes for layer in transformer(*SIZES[gpus])) / 2
        assert parameters == pytest.approx(1e9 * billions, rel=0.03)


def test_what_distbelief_s_speedups_imply() -> None:
    x = implied_ratio(2.2, 8)
    assert 8 / (1 + 7 * x) == pytest.approx(2.2)
    assert "more than 2.7;" in distbelief()
