from typing import Any

import pytest

from scalebook.app.search import data as searches
from scalebook.app.search_setup import data as search_setup
from scalebook.app.search_setup.data import KINDS, SearchField, first_row, kind_of, search_fields
from scalebook.app.shared import notebooks
from scalebook.training.experiments.description import Field
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.costs import Cost
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking.directions import Direction
from tests.app.described import description
from tests.app.recorded import config


def named(name: str) -> SearchField:
    return next(one for one in search_fields(Experiment.read(config(), description())) if one.name == name)


def test_the_handles_come_first_then_every_path_of_the_config() -> None:
    found = [one.name for one in search_fields(Experiment.read(config(), description()))]
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
    rule = {"class_path": "scalebook.training.engine.rules.Bounded", "init_args": {"bound": 9}}
    strategy = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"rule": rule}}
    found = {one.name: one for one in search_fields(Experiment.read(config(strategy=strategy), description()))}
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


TEXT = """# Words

```yaml experiment=first
config: {model: PixelCNN}
```

```yaml search=first-search
experiment: first
space: {batch_size: {powers_of_two: [16, 64]}}
```

More words.

```yaml experiment=second
config: {model: PixelCNN}
```
"""


def body(**changes: Any) -> dict[str, Any]:
    told = search_setup.new_body("first", Experiment(config(), description()))
    return {**told, "space": {"batch_size": {"powers_of_two": [16, 1024]}}, **changes}


def test_a_search_begins_with_the_models_own_metric() -> None:
    assert search_setup.new_body("first", Experiment(config(), description()))["objective"] == "val/bits_per_dim"
    assert search_setup.metrics(Experiment({}, description())) == ["train/loss"]


def test_what_says_nothing_is_left_out_and_the_order_is_one_to_read() -> None:
    told = search_setup.tidy_body({"trials": 3, "exclusive": False, "failures": 10, "minutes": None, "experiment": "a"})
    assert list(told.items()) == [("experiment", "a"), ("trials", 3)]
    assert search_setup.tidy_body({"failures": 3, "exclusive": True, "mine": 1}) == {
        "exclusive": True, "failures": 3, "mine": 1,
    }  # fmt: skip


def test_goals_of_objectives_stay_while_their_names_do() -> None:
    told = {"objective": [{"val/iou": "max"}, "seconds"]}
    assert searches.objectives(told) == ["val/iou", "seconds"]
    assert searches.goal_of(told, "val/iou") == "max"
    assert searches.goal_of({"objective": "val/iou"}, "val/iou") is None
    said, named = Direction(False, "said"), Direction(True, "name")
    assert search_setup.with_objectives(["val/iou", "seconds"], {"val/iou": said}, Experiment({}, description())) == [
        {"val/iou": "max"},
        "seconds",
    ]
    assert search_setup.with_objectives(["val/loss"], {"val/loss": named}, Experiment({}, description())) == "val/loss"


def test_what_runs_say_is_written_where_the_name_says_something_else() -> None:
    recorded = Direction(False, "recorded")
    assert search_setup.with_objectives(["anomaly"], {"anomaly": recorded}, Experiment({}, description())) == {
        "anomaly": "max"
    }
    assert search_setup.with_objectives(["val_r2"], {"val_r2": recorded}, Experiment({}, description())) == "val_r2"
    turned = searches.with_direction({"objective": ["anomaly", "seconds"], "trials": 3}, "anomaly", "max")
    assert turned == {"objective": [{"anomaly": "max"}, "seconds"], "trials": 3}


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Cost(40, 20.0, 6.7, 2), "Starts 40 runs, about 7 minutes on this machine, 2 at a time."),
        (Cost(1, 20.0, 0.3, 1), "Starts 1 run, less than a minute on this machine, one at a time."),
        (Cost(1000, 60.0, 500.0, 2), "Starts 1,000 runs, about 8 hours on this machine, 2 at a time."),
        (Cost(6, None, None, 2), "Starts 6 runs. The time is not known until the first run ends."),
    ],
)
def test_what_it_would_cost_is_said_in_one_sentence(cost: Cost, words: str) -> None:
    assert search_setup.about(cost) == words


def test_examples_say_what_a_batch_becomes_for_each_worker() -> None:
    spec = read_search(body(), Experiment.read(config(), description()), description())
    found = search_setup.examples(spec)
    assert [one.words for one in found] == ["batch 16", "batch 128", "batch 1024"]
    sizes = [(one.trial.batch.per_worker, one.trial.batch.together) for one in found if one.trial]
    assert sizes == [(8, 16), (64, 128), (512, 1024)]
    weak = read_search(body(scaling="weak"), Experiment.read(config(), description()), description())
    assert [one.trial.batch.together for one in search_setup.examples(weak) if one.trial] == [32, 256, 2048]


@pytest.mark.parametrize(
    ("dimension", "middle"),
    [
        (Dimension("a", "log_uniform", 0.01, 1.0), 0.1),
        (Dimension("a", "uniform", 0.0, 1.0), 0.5),
        (Dimension("a", "int", 1, 9, step=2), 5),
        (Dimension("a", "int", 1, 100, log=True), 10),
        (Dimension("a", "powers_of_two", 1, 16), 4),
        (Dimension("a", "values", choices=("x", "y", "z")), "y"),
    ],
)
def test_the_middle_of_a_dimension_is_that_of_its_scale(dimension: Dimension, middle: Any) -> None:
    assert search_setup.value_at(dimension, 0.5) == middle
    assert dimension.contains(search_setup.value_at(dimension, 0.0))
    assert dimension.contains(search_setup.value_at(dimension, 1.0))


def test_a_new_cell_stands_below_its_experiment_and_the_searches_there() -> None:
    notebook = search_setup.put(parse(TEXT), "another", body())
    assert [getattr(one, "name", "") for one in notebook.cells] == [
        "",
        "first",
        "first-search",
        "another",
        "",
        "second",
    ]
    again = search_setup.put(notebook, "another", body(trials=7))
    assert len(again.cells) == len(notebook.cells)
    assert again.searches()[1].body["trials"] == 7


def test_the_cell_is_shown_as_it_would_stand() -> None:
    text = search_setup.cell_text(parse(TEXT), "another", body())
    assert text.startswith("```yaml search=another\nexperiment: first\n")
    assert text.endswith("```")
    assert "batch_size" in search_setup.cell_text(parse(TEXT), "no name", body())


def test_names_are_suggested_free_and_checked() -> None:
    notebook = parse(TEXT)
    assert search_setup.suggested_name({"experiment": "first"}, notebook) == "first-search-2"
    assert search_setup.suggested_name({"experiment": "second", "preset": "mine"}, notebook) == "second-mine"
    assert notebooks.name_problems(notebook, "first", "")[0].message == "first is already used in this notebook"
    assert notebooks.name_problems(notebook, "first-search", "first-search") == []
    assert notebooks.name_problems(notebook, "two words", "")[0].key == "name"
    assert notebooks.name_problems(notebook, "x" * 300, "")[0].message == "has 300 characters, more than 100"
    assert notebooks.name_problems(notebook, "x" * 300, "x" * 300) == []
