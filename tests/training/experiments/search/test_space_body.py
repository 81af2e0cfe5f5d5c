from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.space_body import read_space
from scalebook.training.experiments.search.types import RateRule


def read(text: str) -> Any:
    return read_space(yaml.load(text))


def test_every_kind_is_read() -> None:
    found = read("""
batch_size: {powers_of_two: [16, 1024]}
learning_rate: {log_uniform: [0.001, 1], points: 4, rule: sqrt, per: 128, warmup_epochs: 2}
workers: {grid: [4, 1, 2]}
strategy: {values: [single, {class_path: AsyncPS}]}
model.init_args.hidden: {int: [16, 256], log: true}
model.dropout: {uniform: [0, 0.5], points: 3}
model.layers: {int: [1, 9], step: 4}
""")
    assert found.problems == []
    assert found.dimensions == (
        Dimension("batch_size", "powers_of_two", 16, 1024),
        Dimension("learning_rate", "log_uniform", 0.001, 1.0, points=4),
        Dimension("workers", "grid", choices=(1, 2, 4)),
        Dimension("strategy", "values", choices=("single", {"class_path": "AsyncPS"})),
        Dimension("model.hidden", "int", 16, 256, log=True),
        Dimension("model.dropout", "uniform", 0.0, 0.5, points=3),
        Dimension("model.layers", "int", 1, 9, step=4),
    )
    assert found.rate == RateRule("sqrt", 128, 2.0)
    assert found.key("model.hidden") == "space.model.init_args.hidden"


def test_a_rate_without_a_rule_is_taken_as_it_is() -> None:
    assert read("learning_rate: {log_uniform: [0.1, 1]}").rate is None
    assert read("learning_rate: {log_uniform: [0.1, 1], rule: linear}").rate == RateRule("linear", 256, 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "batch_size: {powers_of_two: [16, 96]}",
            "space.batch_size: 96 is not a power of two. Use 64 or 128, or int: [16, 96].",
        ),
        ("batch_size: {powers_of_two: [0, 8]}", "space.batch_size: 0 is not a power of two. Use 1, or int: [0, 8]."),
        (
            "batch_size: [16, 32]",
            "space.batch_size: is [16, 32], without a kind of range. Set {values: [16, 32]}.",
        ),
        ("batch_size: {power_of_two: [1, 2]}", "Did you mean `powers_of_two`?"),
        ("batch_size: {int: [1, 2], grid: [1]}", "space.batch_size: has 2 kinds."),
        ("batch_size: {int: [1, 2.5]}", "has ends that are not whole numbers: 1 and 2.5. Use whole numbers"),
        ("batch_size: {int: [9, 2]}", "space.batch_size: is an empty range, because 9 is above 2. Set int: [2, 9]."),
        (
            "batch_size: {int: 9}",
            "space.batch_size: has 9 instead of a range. Use two whole numbers, {int: [LOWEST, HIGHEST]}.",
        ),
        ("model.x: {uniform: [0, .inf]}", "has [0, inf] instead of a range"),
        (
            "model.x: {log_uniform: [0, 1]}",
            "space.model.x: starts at 0, which has no logarithm. Start above 0, or use uniform.",
        ),
        ("model.x: {int: [0, 8], log: true}", "space.model.x: starts at 0, which has no logarithm."),
        ("model.x: {int: [1, 8], log: true, step: 2}", "space.model.x.step: does not work with log."),
        ("model.x: {int: [1, 8], step: 0}", "space.model.x.step: is 0. Use a whole number of at least 1."),
        ("model.x: {int: [1, 8], log: 1}", "space.model.x.log: is 1. Use true or false."),
        (
            "model.x: {uniform: [1, 8], step: 2}",
            "space.model.x.step: has no effect with uniform. Keys for uniform: points.",
        ),
        ("model.x: {uniform: [1, 8], rule: linear}", "space.model.x.rule: has no effect with uniform."),
        ("model.x: {values: [a, b, a]}", "space.model.x: contains a twice. List each value once."),
        ("model.x: {values: []}", "space.model.x: has [] instead of a list for values. Use a list, {values: [1, 2]}."),
        ("model.x: {grid: [1, a]}", "space.model.x: has a grid with values that are not numbers."),
        ("model.x: {grid: [1, 1.0]}", "twice"),
        ("learning_rate: {log_uniform: [1, 2], per: 256}", "space.learning_rate.per: has no effect without a rule."),
        (
            "learning_rate: {log_uniform: [1, 2], rule: square}",
            "space.learning_rate.rule: is 'square'. Use one of linear, sqrt",
        ),
        (
            "learning_rate: {log_uniform: [1, 2], rule: sqrt, warmup_epochs: -1}",
            "space.learning_rate.warmup_epochs: is -1.",
        ),
        ("learning_rate: {log_uniform: [1, 2], rule: sqrt, per: 0}", "space.learning_rate.per: is 0."),
        (
            "{model.x: {values: [1]}, model.init_args.x: {values: [2]}}",
            "space.model.init_args.x: sets model.x a second time.",
        ),
        ("model.x: {uniform: [0, 1.0e+301]}", "instead of a range. Use two numbers"),
        ("model.x: {int: [0, 1.0e+30]}", "reaches 1e+30. Use whole numbers up to 9007199254740992"),
        ("model.x: {uniform: [0, 1], points: 100001}", "is 100001. Use a whole number from 1 to 100000."),
        ("".join(f"k{n}: {{int: [1, 2]}}\n" for n in range(201)), "space: has 201 dimensions, more than 200"),
        ("{}", "space: is {}. For example, use batch_size: {powers_of_two: [16, 256]}."),
        ("[a]", "space: is ['a']."),
    ],
)
def test_a_mistake_names_its_key_and_what_to_write(text: str, said: str) -> None:
    (problem,) = read(text).problems
    assert said in str(problem)


def test_all_mistakes_are_found_and_the_rest_is_read() -> None:
    found = read("a.b: {int: [2, 1]}\nc.d: 3\nmodel.x: {values: [1]}\n")
    assert [one.key for one in found.problems] == ["space.a.b", "space.c.d"]
    assert [one.name for one in found.dimensions] == ["model.x"]


def test_a_search_without_a_space() -> None:
    (problem,) = read_space(None).problems
    assert str(problem) == "space: is missing. For example, use batch_size: {powers_of_two: [16, 256]}."
