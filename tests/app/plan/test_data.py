import csv
from dataclasses import replace

import pytest

from scalebook.app.plan.data import FIELDS, TEMPLATE, as_csv, curve_names, facts, from_fields, from_text
from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Distribution
from tests.app.plan.planned import answer


def test_names_say_what_differs() -> None:
    curve = answer().curves[0]
    assert curve_names([curve]) == ["async"]
    other = replace(curve, shards=2, network="10gbe")
    assert curve_names([curve, other]) == [
        "async · 1 shard · the profile's own links", "async · 2 shards · 10 Gbit/s Ethernet",
    ]  # fmt: skip


def test_csv_has_a_line_for_each_point() -> None:
    found = answer()
    rows = list(csv.DictReader(as_csv(found).splitlines()))
    assert [(row["rule"], row["workers"]) for row in rows] == [
        (curve.rule, str(point.workers)) for curve in found.curves for point in curve.points
    ]
    assert rows[3]["samples_per_s"] == "400"
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
        "time per gradient": "200 ms", "samples per gradient": "32", "a push": "100 MB", "a pull": "100 MB",
        "server time per push": "30 ms", "link": "no limit",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("gradient", "soon", "profile.gradient.mean: is 'soon', not a number of seconds. Write it as 0.18, or"),
        ("spread", "wide", "profile.gradient.cv: is 'wide', not a number. Write one, as 0.1."),
        ("batch", "1.5", "profile.batch_size: is 1.5, not a whole number"),
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
