import csv
from dataclasses import replace

import pytest

from scalebook.app.plan.data import (
    FIELDS,
    TEMPLATE,
    as_csv,
    curve_names,
    facts,
    from_fields,
    from_text,
    split_count,
    split_rows,
)
from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.planner.split_grid import price_splits
from scalebook.training.planner.split_words import first_words
from scalebook.training.pricing.links import Network
from tests.app.plan.planned import answer
from tests.training.planner.test_split_grid import system


def test_names_say_what_differs() -> None:
    curve = answer().curves[0]
    assert curve_names([curve]) == ["async"]
    other = replace(curve, shards=2, network="10gbe")
    assert curve_names([curve, other]) == [
        "async · 1 shard · the links of the profile", "async · 2 shards · 10 Gbit/s Ethernet",
    ]  # fmt: skip


def test_csv_has_a_line_for_each_point() -> None:
    found = answer()
    rows = list(csv.DictReader(as_csv(found).splitlines()))
    assert [(row["rule"], row["workers"]) for row in rows] == [
        (curve.rule, str(point.workers)) for curve in found.curves for point in curve.points
    ]
    assert rows[3]["samples_per_s"] == "400"
    assert {row["basis"] for row in rows} == {""}, "a profile that a person wrote"
    here = replace(found, curves=[replace(curve, measured=2) for curve in found.curves])
    bases = {row["workers"]: row["basis"] for row in csv.DictReader(as_csv(here).splitlines())}
    assert (bases["2"], bases["4"]) == ("measured", "extrapolated")
    assert float(rows[3]["speedup"]) == float(f"{400 / found.curves[0].one_per_s:.6g}")


TYPED = {field.key: field.default for field in FIELDS}


def test_form_and_template_say_the_same() -> None:
    form, text = from_fields(TYPED), from_text(TEMPLATE)
    assert form.gradient_s == text.gradient_s == Distribution("gamma", 0.18, 0.1)
    assert (form.batch_size, form.push_bytes, form.pull_bytes, form.server_s) == (32, 1e8, 1e8, 0.03)
    assert form.server_s == text.server_s
    assert form.network == text.network


def test_what_is_empty_has_no_limit_and_no_spread() -> None:
    profile = from_fields({**TYPED, "spread": "", "bandwidth": " ", "latency": "", "gradient": "0.2"})
    assert profile.gradient_s == 0.2
    assert profile.network.link.bandwidth is None
    assert dict(facts(profile)) == {
        "time per gradient": "200 ms", "samples per gradient": "32", "bytes per push": "100 MB", "bytes per "
                                                                                                 "pull": "100 MB",
        "server time per push": "30 ms", "link": "no limit",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("gradient", "soon", "profile.gradient.mean: is 'soon', not a number of seconds. Use the form 0.18, or"),
        (
            "spread",
            "wide",
            "profile.gradient.cv: is 'wide', not a number. Enter a number, such as 0.1.",
        ),
        ("samples", "1.5", "profile.batch_size: is 1.5, not a whole number"),
        ("parameters", "many", "profile.parameters: is 'many', not a number of bytes"),
        ("copying", "0", "profile.copy_bandwidth: is 0"),
        ("bandwidth", "0 Gbit/s", "profile.network.bandwidth: is 0, so nothing would arrive"),
    ],
)
def test_mistakes_in_the_form_name_key_and_remedy(key: str, typed: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_fields({**TYPED, key: typed})
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gradient: [", "line"),
        ("- 1", "profile: is not a mapping"),
        ("gradients: 1", "profile.gradients: unknown key"),
    ],
)
def test_mistakes_in_yaml_name_place_and_remedy(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_text(text)
    assert said in str(raised.value)


def test_splits_are_rows_with_what_limits_them_and_those_that_do_not_fit_are_struck_out() -> None:
    fast = Network(Link(0.0, 1e11), Link(0.0, 1e11))
    found = price_splits(system(memory=3e9), fast, 4, "10gbe")
    rows = split_rows(found)
    held = [row for row in rows if not row.struck]
    assert [row.words for row in held] == [point.words for point in found.points]
    best = found.points[0]
    assert held[0].figures[:3] == (f"{best.samples_per_s:.3g}", f"{best.faster:.2f}", f"{best.samples:,}")
    assert any("waits for parameters and gradients" in row.cause for row in held)
    (whole,) = [row for row in rows if row.words == "data 4"]
    assert whole.struck
    assert whole.figures == ("", "", "", "", "4.24 GB", "")
    assert whole.cause == "more than the memory of a worker, 3 GB; 4.06 GB if activations are computed again"
    assert rows[-1] == whole, "it needs most"
    assert split_count(found) == f"{len(rows)} of {len(rows)} splits."
    assert first_words(found)[0].startswith("On this link, a tensor split pays off from a width of")


def test_of_many_splits_the_best_are_shown() -> None:
    found = price_splits(system(), Network(Link(0.0, 1e11), Link(0.0, 1e11)), 64, "10gbe")
    assert [row.struck for row in split_rows(found)] == [False] * 12 + [True] * min(len(found.struck), 12)
    assert split_count(found).endswith(f" of {len(found.points) + len(found.struck)} splits.")
