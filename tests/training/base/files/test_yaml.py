import pytest
import yaml as pyyaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.files.yaml import MOST_CHARACTERS, MOST_VALUES

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12),
    st.sampled_from(["on", "No", "y", "1e-3", "null", "~", "1:30", "0o7", " a", "a: b", "- x", "#"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the table of characters is made at first, in seconds
@given(st.dictionaries(st.text("abcxyz_", min_size=1, max_size=8), VALUES, max_size=4))
def test_what_is_dumped_loads_as_the_same(config: dict[str, object]) -> None:
    assert yaml.load(yaml.dump(config)) == config


@pytest.mark.parametrize("value", [1e-5, 0.001, 1e20, "on", "no", True, None, "Yes", [1, 2.5], 3])
def test_the_old_yaml_of_the_parser_reads_the_same(value: object) -> None:
    assert pyyaml.safe_load(yaml.dump({"k": value})) == {"k": value}


def test_a_number_in_short_notation_is_a_number() -> None:
    assert yaml.load("lr: 1e-3\nname: on") == {"lr": 0.001, "name": "on"}


def test_keys_come_in_the_order_of_a_config_and_lists_on_one_line() -> None:
    config = {
        "data": {"init_args": {"b": 1}, "class_path": "D"},
        "trainer": {"betas": [0.9, 0.99]},
        "seed_everything": 2,
    }
    assert yaml.dump(config) == (
        "seed_everything: 2\ntrainer:\n  betas: [0.9, 0.99]\ndata:\n  class_path: D\n  init_args:\n    b: 1\n"
    )


@pytest.mark.parametrize(
    ("text", "line"), [("a: 1\nb: [1", "line 2"), ("a: 1\n\ta: 2", "line 2"), ("a: 1\na: 2", "line 2")]
)
def test_a_mistake_is_named_with_its_line(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        yaml.load(text)
    assert caught.value.problem.key == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a {b: *a}", "line 1: contains itself"),
        ("- &a [x]\n- *a\n- &b [*b]", "line 3: contains itself"),
        ("- &a0 [x]\n" + "".join(f"- &a{n + 1} [*a{n}]\n" for n in range(70)), "nested deeper than 32 levels when"),
        ("[" * 33 + "]" * 33, "nested deeper than 32 levels"),
        ("{a: " * 5000, "nested deeper than 32 levels"),
        ("- " * 5000, "nested deeper than 32 levels"),
        ("a: &a [" + "x," * 200 + "]\nb: [" + "*a," * 100 + "]", "more than 10,000 values when its aliases"),
        ("a: &a {k: 1}\nb: &b {<<: [" + "*a," * 100 + "]}\nc: {<<: [" + "*b," * 99 + "]}", "more than 10,000 values"),
        ("[" + "a," * MOST_VALUES + "]", "more than 10,000 values"),
        ("a: " + "x" * MOST_CHARACTERS, "has 500,003 characters, more than 500,000"),
        ("a: " + "9" * 19, "line 1: holds a whole number of 19 digits"),
        ("a:\n  - 0x" + "f" * 5000, "line 2: holds a whole number of 5,001 digits"),
        ("%YAML 1.1\n---\na: " + ":".join(["59"] * 4000), "whole number of"),
        ("a: !!set {b}", "a value with the tag !!set"),
        ("a: !!binary aGk=", "a value with the tag !!binary"),
        ("a: !!python/name:os.system x", "could not determine a constructor"),
        ("a: 2026-99-99", "month must be in 1..12"),
        ("a: !!int ''", "has a value that cannot be read"),
        ("a: \x00", "unacceptable character"),
        ("? {a: 1}\n: 2", "unhashable key"),
    ],
)
def test_what_is_not_read_says_why_on_its_line(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        yaml.load(text)
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


def test_what_is_within_the_limits_is_read() -> None:
    assert yaml.load("a: " + "9" * 18) == {"a": 10**18 - 1}
    assert yaml.load("a: -000_000_000_000_000_000_000_7") == {"a": -7}
    assert yaml.load("a: &x 1\nb: &x 2\nc: *x") == {"a": 1, "b": 2, "c": 2}
    assert yaml.load("\ufeffa: 1e400") == {"a": float("inf")}
    assert yaml.load("a: &a {k: 1}\nb: {<<: *a, l: 2}") == {"a": {"k": 1}, "b": {"k": 1, "l": 2}}
    assert yaml.load("[" * 32 + "]" * 32)
    assert yaml.load("[" * 64 + "]" * 64, ours=True)
    assert yaml.load("") is None
