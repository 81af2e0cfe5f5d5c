"""What YAML may cost to read: values, depth, digits, counted with every alias followed."""

import pytest

from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.files.nodes import MOST_CHARACTERS, MOST_VALUES


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
