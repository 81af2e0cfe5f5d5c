import pytest

from scalebook.app.search.services.search_fields import KINDS, SearchField, first_row, kind_of, search_fields
from scalebook.training.config.description import Field
from tests.app.described import description
from tests.app.recorded import config


def named(name: str) -> SearchField:
    return next(one for one in search_fields(config(), description()) if one.name == name)


def test_the_handles_come_first_then_every_path_of_the_config() -> None:
    found = [one.name for one in search_fields(config(), description())]
    assert found[:4] == ["batch_size", "learning_rate", "strategy", "workers"]
    assert {"model.features", "model.activation", "trainer.strategy.rule", "trainer.gradient_clip_val"} <= set(found)
    for handled in ("data.batch_size", "optimizer.lr", "trainer.devices", "trainer.strategy.workers"):
        assert handled not in found


def test_a_field_says_what_the_config_says_now() -> None:
    assert named("batch_size").present == 64  # 32 for each of two workers
    assert named("learning_rate").present == 0.001
    assert named("workers").present == 2
    assert named("strategy").present == "async"
    assert named("model.features").present == 16  # the default
    assert named("trainer.strategy.rule").present == "async"
    assert named("model.features").label == "model.features  (now 16)"


def test_settings_of_a_class_that_is_an_argument_are_fields_too() -> None:
    rule = {"class_path": "scalebook.training.ps.policy.rules.Bounded", "init_args": {"bound": 9}}
    strategy = {"class_path": "scalebook.training.strategies.AsyncPS", "init_args": {"rule": rule}}
    found = {one.name: one for one in search_fields(config(strategy=strategy), description())}
    assert found["trainer.strategy.rule.bound"].present == 9


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_range_begins_with_something_valid(kind: str) -> None:
    field = SearchField("model.features", "model.features", 16, Field("features", "int", minimum=1, maximum=512))
    row = first_row(field, kind)  # type: ignore[arg-type]  # a key of KINDS
    assert kind_of(row) == kind
    values = row[kind]
    if kind not in ("values", "grid"):
        assert values[0] < values[1]
        assert values[1] <= 512


def test_a_rate_begins_on_a_logarithmic_range_around_what_it_is_now() -> None:
    assert first_row(named("learning_rate")) == {"log_uniform": [3e-05, 0.03]}
    assert first_row(named("batch_size")) == {"powers_of_two": [8, 512]}
    assert first_row(named("model.activation")) == {"values": ["relu", "elu"]}
    assert first_row(named("trainer.strategy.rule")) == {"values": ["async", "bounded"]}


def test_bounds_of_a_field_hold_for_its_first_range() -> None:
    dropout = SearchField("model.dropout", "model.dropout", 0.5, Field("dropout", "float", minimum=0.0, maximum=1.0))
    assert dropout.kinds[0] == "uniform"
    assert first_row(dropout) == {"uniform": [0.0, 1.0]}
    layers = SearchField("model.layers", "model.layers", 4, Field("layers", "int", minimum=2, maximum=8))
    assert first_row(layers) == {"int": [2, 8]}
