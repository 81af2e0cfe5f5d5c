import math
import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook import app
from scalebook.app.shared.words import (
    ago,
    figure,
    interval,
    plain,
    plural,
    rate_words,
    scaled_words,
    sentence,
    spoken,
    summary,
)
from scalebook.training.experiments.experiment import Experiment
from tests.app.described import description
from tests.app.recorded import config


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (0.0, "0"), (2.1034, "2.103"), (0.031, "0.03100"), (12400.0, "12,400"), (999.96, "1000.0"),
     (0.00000123, "1.23e-06"), (math.nan, "NaN"), (-math.inf, "−∞"), (-0.5, "-0.5000"),
     (sys.float_info.max, "∞"), (2.5e20, "2.50e+20")],
)  # fmt: skip
def test_figures_have_four_digits(value: float | None, said: str) -> None:
    assert figure(value) == said


def test_values_of_a_config_in_a_line() -> None:
    assert plain({"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None}) == (
        "{lr: 0.001, betas: [0.9, 0.999], amsgrad: false, foreach: –}"
    )


@pytest.mark.parametrize(
    ("past", "said"),
    [(3, "just now"), (300, "5 min ago"), (7200, "2 h ago"), (90000, "yesterday"), (3 * 86400, "3 days ago")],
)
def test_how_long_ago(past: float, said: str) -> None:
    assert ago(1e9 - past, now=1e9) == said
    assert ago(1e9 - 30 * 86400, now=1e9) == "10 Aug 2001"


def test_small_words() -> None:
    assert (plural(1, "worker"), plural(2000, "run")) == ("1 worker", "2,000 runs")
    assert (spoken("batch_size"), spoken("model.init_args.n_layers")) == (
        "batch size", "model.init_args.n_layers",
    )  # fmt: skip
    assert (sentence("worker lost"), sentence(""), sentence("Why?")) == ("Worker lost.", "", "Why?")
    assert sentence("train/loss became NaN after 1 update") == "train/loss became NaN after 1 update."


@pytest.mark.parametrize("phrase", ["How it is spread", "Circumstances", "arks on the rail", "async PS", "Async PS"])
def test_the_pages_use_plain_words_and_one_for_one_thing(phrase: str) -> None:
    sources = [path for place in app.__path__ for path in Path(place).rglob("*.py")]
    assert len(sources) > 70
    assert [path.name for path in sources if phrase in path.read_text(encoding="utf-8")] == []


def words(given: dict[str, Any]) -> tuple[str, str]:
    experiment = Experiment.read(given, description())
    return scaled_words(experiment), rate_words(experiment.rate)


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
    assert summary(
        Experiment.read({**config(), "lr_scaling": {"rule": "linear", "per": 8}}, description())
    ).optimizer == ("Adam, lr 0.001 → 0.004")


def test_an_experiment_in_one_line() -> None:
    assert summary(Experiment.read(config(), description())).parts() == [
        "PixelCNN on Digits",
        "parameter server × 2, async",
        "batch 32 per worker, 64 global",
        "Adam, lr 0.001",
        "5 epochs",
    ]


def test_a_rule_is_named_with_what_matters() -> None:
    strategy = {"class_path": "AsyncPS", "init_args": {"rule": {"class_path": "Bounded", "init_args": {"bound": 3}}}}
    assert (
        summary(Experiment.read(config(2, strategy), description())).strategy
        == "parameter server × 2, bounded, bound 3"
    )


def test_one_process_needs_fewer_words() -> None:
    wanted = config(1, "auto")
    wanted["trainer"]["max_time"] = "00:00:02:30"
    assert summary(Experiment.read(wanted, description())).parts() == [
        "PixelCNN on Digits", "one process", "batch 32", "Adam, lr 0.001", "2 min 30 s",
    ]  # fmt: skip


def test_a_broken_config_says_what_can_be_read() -> None:
    broken = {"model": {"class_path": "no.Model"}, "trainer": "fast", "data": 3}
    found = summary(Experiment.read(broken, description()))
    assert (found.model_and_data, found.budget) == ("Model", "")


def test_intervals() -> None:
    assert interval(2.1034, 0.01234) == "2.103 ± 0.012"
    assert interval(2.1034, None) == "2.103"
    assert interval(None, None) == ""


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [
        (2.1034, 0.0123, "2.103 ± 0.012"),
        (37.83, 36.2, "38 ± 36"),
        (304.0, 0.0, "304"),
        (0.25, 0.0, "0.2500"),
        (12_412.0, 350.0, "12,412 ± 350"),
        (2.0, None, "2.000"),
        (2.0, math.inf, "2.000"),
        (1.2e-7, 3e-9, "1.20e-07 ± 3e-09"),
    ],
)
def test_an_interval_decides_how_many_digits_a_mean_has(mean: float, half: float | None, shown: str) -> None:
    assert interval(mean, half) == shown
