import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml

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
