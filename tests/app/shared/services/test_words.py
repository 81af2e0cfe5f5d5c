import math
import sys
from pathlib import Path

import pytest

from scalebook import app
from scalebook.app.shared.services import words


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (0.0, "0"), (2.1034, "2.103"), (0.031, "0.03100"), (12400.0, "12,400"), (999.96, "1000.0"),
     (0.00000123, "1.23e-06"), (math.nan, "NaN"), (-math.inf, "−∞"), (-0.5, "-0.5000"),
     (sys.float_info.max, "∞"), (2.5e20, "2.50e+20")],
)  # fmt: skip
def test_figures_have_four_digits(value: float | None, said: str) -> None:
    assert words.figure(value) == said


def test_values_of_a_config_in_a_line() -> None:
    assert words.plain({"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None}) == (
        "{lr: 0.001, betas: [0.9, 0.999], amsgrad: false, foreach: –}"
    )


@pytest.mark.parametrize(
    ("past", "said"),
    [(3, "just now"), (300, "5 min ago"), (7200, "2 h ago"), (90000, "yesterday"), (3 * 86400, "3 days ago")],
)
def test_how_long_ago(past: float, said: str) -> None:
    assert words.ago(1e9 - past, now=1e9) == said
    assert words.ago(1e9 - 30 * 86400, now=1e9) == "10 Aug 2001"


def test_small_words() -> None:
    assert (words.plural(1, "worker"), words.plural(2000, "run")) == ("1 worker", "2,000 runs")
    assert (words.spoken("batch_size"), words.spoken("model.init_args.n_layers")) == (
        "batch size", "model.init_args.n_layers",
    )  # fmt: skip
    assert (words.sentence("worker lost"), words.sentence(""), words.sentence("Why?")) == ("Worker lost.", "", "Why?")


@pytest.mark.parametrize("phrase", ["How it is spread", "Circumstances", "arks on the rail", "async PS", "Async PS"])
def test_the_pages_use_plain_words_and_one_for_one_thing(phrase: str) -> None:
    sources = [path for place in app.__path__ for path in Path(place).rglob("*.py")]
    assert len(sources) > 100
    assert [path.name for path in sources if phrase in path.read_text(encoding="utf-8")] == []
