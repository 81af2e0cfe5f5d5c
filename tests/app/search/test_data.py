from dataclasses import replace
from pathlib import Path

from scalebook.app.search import data as searches
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import body_of, identity
from scalebook.training.notebook.parse import parse
from scalebook.training.search.search_folder import SearchProgress, SearchResult
from tests.app.described import description
from tests.app.recorded import config
from tests.app.searches import BATCH, RATE, folder, records, spec

TEXT = """# Words

```yaml experiment=first
repeats: 3
config: {model: PixelCNN}
```

```yaml search=batch-size
experiment: first
space: {batch_size: {powers_of_two: [16, 64]}}
```

More words.
"""


def test_a_search_is_read_from_its_folder(tmp_path: Path) -> None:
    search = spec((BATCH, RATE), trials=20)
    made = folder(Workspace(tmp_path), search, records(search, 8))
    made.write(SearchProgress(2e9, 8, 0, 20, best=0.1234, best_trial=3))
    found = searches.find(Workspace(tmp_path), made.id)
    assert found is not None
    assert (found.name, found.state, found.best) == ("batch-size", "finished", "0.1234")
    assert (found.done, found.trials) == (8, 20)
    assert found.objective == "val/loss"
    assert found.fraction == 0.4
    assert not found.complete  # somebody has asked for more trials since
    assert searches.find(Workspace(tmp_path), "no such") is None
    assert searches.of_cell(Workspace(tmp_path), "first-steps.md", "batch-size") == found
    assert searches.of_cell(Workspace(tmp_path), "first-steps.md", "another") is None
    assert [one.id for one in searches.views(Workspace(tmp_path), 10)] == [made.id]


def test_why_it_does_not_go_on_is_said_with_a_remedy(tmp_path: Path) -> None:
    search = spec((BATCH, RATE), trials=4)
    made = folder(Workspace(tmp_path), search, records(search, 4))
    assert searches.view(made).trouble == ""
    made.write(SearchResult("failed", 2e9, "10 trials have failed", "Look at the log of one of them."))
    assert searches.view(made).trouble == "10 trials have failed. Look at the log of one of them."


def test_a_cell_is_stale_when_it_says_another_search(tmp_path: Path) -> None:
    search = spec((BATCH, RATE), trials=4)
    made = folder(Workspace(tmp_path), search, records(search, 4), asked=identity(search))
    found = searches.view(made)
    body = {key: value for key, value in body_of(search).items() if key != "config"} | {"experiment": "first"}
    assert not searches.what_changed(found, body, Experiment(config(), description()), description())
    assert not searches.what_changed(
        found, {**body, "trials": 400, "sampler": "random"}, Experiment(config(), description()), description()
    )
    assert searches.what_changed(found, {**body, "scaling": "weak"}, Experiment(config(), description()), description())
    assert searches.what_changed(found, body, Experiment(config(workers=4), description()), description())
    assert searches.what_changed(found, body, None, description())


def test_the_line_of_a_search_says_what_a_batch_size_means() -> None:
    body = {
        "space": {
            "batch_size": {"powers_of_two": [16, 1024]},
            "learning_rate": {"log_uniform": [0.001, 1.0], "rule": "linear", "per": 256},
            "strategy": {"values": ["single", "ddp"]},
        },
        "scaling": "weak", "sampler": {"qmc": {"seed": 3}}, "pruner": "median", "trials": 30, "seeds": 3,
        "exclusive": True, "seconds_per_trial": 20,
    }  # fmt: skip
    assert searches.space_words(body) == (
        "batch size 16 … 1,024 × learning rate 0.001 … 1 (linear per 256) × strategy single, ddp"
    )
    assert searches.scaling_words(body) == "weak scaling: batch size per worker"
    assert searches.scaling_words({}) == "strong scaling: global batch size"
    assert searches.budget_words(body) == ["30 trials × 3 seeds", "QMC", "median pruner", "20 s per run", "exclusive"]
    assert searches.space_words({"space": "many"}) == "nothing yet"


def test_the_best_trial_becomes_an_experiment_below_the_search(tmp_path: Path) -> None:
    search = spec((BATCH, RATE), trials=8)
    told = records(search, 8)
    found = searches.view(folder(Workspace(tmp_path), search, told))
    record = next(one for one in told if one.state == "finished")
    notebook, name = searches.with_best(parse(TEXT), found, record, search)
    assert name == "batch-size-best"
    assert [getattr(one, "name", "") for one in notebook.cells] == ["", "first", "batch-size", "batch-size-best", ""]
    made = notebook.experiment(name)
    assert made is not None
    assert made.repeats == 3
    assert made.config["data"]["init_args"]["batch_size"] * 2 == record.point["batch_size"]
    assert made.config["optimizer"]["init_args"]["lr"] == record.point["learning_rate"]
    assert made.remark.startswith(f"Started from trial {record.number} of batch-size, which reached val/loss ")
    again, second = searches.with_best(notebook, found, record, search)
    assert second == "batch-size-best-2"
    many = replace(found, request=replace(found.request, name="many"), body={**found.body, "preset": "batch-size"})
    assert searches.with_best(notebook, many, record, search)[1] == "many-best"
    assert again.experiment("batch-size-best") is not None
