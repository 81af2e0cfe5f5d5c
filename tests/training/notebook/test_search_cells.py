"""Search cells: read, kept byte for byte, checked with the line of a mistake, edited in place."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from scalebook.training.base.files.yaml_flow import same
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import BrokenCell, ExperimentCell, SearchCell
from scalebook.training.notebook.notebook_problems import check
from scalebook.training.notebook.parse import parse
from tests.examples import examples
from tests.training.notebook.strategies import configs, notebooks, values, words

PAGE = """# Page

```yaml experiment=one
config:
  model: ConvClassifier
  data: Digits
```

```yaml search=sizes
# how large may a batch be?
experiment: one   # the base
objective: val/accuracy
space:
  batch_size: {powers_of_two: [16, 128]}   # images
  learning_rate:
    log_uniform: [0.001, 0.1]
trials: 30
```
"""
BODY: dict[str, Any] = {
    "experiment": "one",
    "objective": "val/accuracy",
    "space": {"batch_size": {"powers_of_two": [16, 128]}, "learning_rate": {"log_uniform": [0.001, 0.1]}},
    "trials": 30,
}


def test_a_search_is_read_with_its_base(description: Description) -> None:
    nb = parse(PAGE)
    cell = nb.search("sizes")
    assert cell is not None
    assert (cell.name, cell.body, cell.experiment) == ("sizes", BODY, "one")
    assert nb.searches() == [cell]
    assert nb.base(cell, description) == Experiment({"model": "ConvClassifier", "data": "Digits"}, description)
    assert nb.base(SearchCell("", "other", {"experiment": "two"}), description) is None
    assert nb.base(SearchCell("", "other", {"config": {}}), description) is None
    assert check(nb, description) == []


def test_a_search_that_is_no_yaml_is_broken() -> None:
    (cell,) = parse("```yaml search=a\nspace: [\n```\n").cells
    assert isinstance(cell, BrokenCell)
    assert (cell.kind, cell.name, cell.key, cell.line) == ("search", "a", "YAML", 2)
    (empty,) = parse("```yaml search=a\n```\n").cells
    assert isinstance(empty, BrokenCell)
    assert empty.message.startswith("is empty")


def _places(text: str, description: Description) -> list[tuple[int, str, str]]:
    return [(one.line, one.cell_name, one.problem.key) for one in check(parse(text), description)]


def test_each_mistake_has_its_line(description: Description) -> None:
    wrong = (
        PAGE.replace("128]", "96]").replace("  learning_rate:", "  leaning_rate:").replace("trials: 30", "trials: many")
    )
    assert _places(wrong, description) == [
        (14, "sizes", "space.batch_size"),
        (17, "sizes", "trials"),
        (15, "sizes", "space.leaning_rate"),
    ]
    deep = PAGE.replace("log_uniform: [0.001, 0.1]", "log_uniform: [0.001, 0.1]\n    ruel: linear")
    assert _places(deep, description) == [(17, "sizes", "space.learning_rate.ruel")]
    points = PAGE.replace("trials: 30", "points:\n  - {batch_size: 16}\n  - {batch_size: 17}")
    assert _places(points, description) == [(19, "sizes", "points.1.batch_size")]


def test_the_experiment_of_a_search(description: Description) -> None:
    assert _places(PAGE.replace("experiment: one ", "experiment: on "), description) == [(11, "sizes", "experiment")]
    (problem,) = check(parse(PAGE.replace("experiment: one ", "experiment: on ")), description)
    assert str(problem.problem) == "experiment: there is no experiment on in this notebook. Did you mean `one`?"
    wrong = PAGE.replace("model: ConvClassifier", "model: ConvClassifer")  # said where it stands, once
    assert _places(wrong, description) == [(5, "one", "model")]
    broken = PAGE.replace("  data: Digits\n", "  data: [\n")
    assert [name for _, name, _ in _places(broken, description)] == ["one"]
    assert _places(PAGE.replace("experiment: one   # the base\n", ""), description) == [(10, "sizes", "experiment")]
    config = "config: {model: ConvClassifier, data: Digit}\n"
    assert _places(PAGE.replace("experiment: one   # the base\n", config), description) == [
        (11, "sizes", "config.data")
    ]


def test_one_dimension_changes_one_line() -> None:
    nb = parse(PAGE)
    assert edit.put_search(nb, "sizes", BODY) is nb
    space = {**BODY["space"], "batch_size": {"powers_of_two": [16, 512]}}
    assert edit.put_search(nb, "sizes", {**BODY, "space": space}).text == PAGE.replace("128]", "512]")
    less = {"batch_size": BODY["space"]["batch_size"]}
    text = edit.put_search(nb, "sizes", {**BODY, "space": less, "seeds": 3}).text
    assert text == PAGE.replace("  learning_rate:\n    log_uniform: [0.001, 0.1]\n", "").replace(
        "trials: 30\n", "trials: 30\nseeds: 3\n"
    )
    more = edit.put_search(nb, "sizes", {**BODY, "space": {**less, "workers": {"values": [1, 2]}}}).text
    assert "  workers:\n    values: [1, 2]\ntrials: 30\n" in more


def test_a_new_search_reads_as_a_page() -> None:
    rate = {"log_uniform": [0.001, 0.1], "per": 256, "rule": "linear"}
    body: dict[str, Any] = {
        "experiment": "one",
        "objective": ["val/loss", "seconds"],
        "space": {"learning_rate": rate},
        "trials": 9,
    }
    nb = edit.put_search(parse(PAGE), "rates", body, position=2)
    assert [type(cell).__name__ for cell in nb.cells] == ["Note", "ExperimentCell", "SearchCell", "SearchCell"]
    assert (
        nb.cells[2].source
        == """```yaml search=rates
experiment: one
objective: [val/loss, seconds]
space:
  learning_rate: {log_uniform: [0.001, 0.1], per: 256, rule: linear}
trials: 9
```

"""
    )
    again = edit.put_search(nb, "rates", {**body, "space": {**body["space"], "workers": {"values": [1, 2]}}})
    assert "rule: linear}\n  workers: {values: [1, 2]}\ntrials: 9\n" in again.text
    whole = edit.put_search(parse(""), "a", {"config": {"data": "Digits", "model": {"class_path": "M"}}, "trials": 2})
    assert whole.text == "```yaml search=a\nconfig:\n  model:\n    class_path: M\n  data: Digits\ntrials: 2\n```\n"


def test_renaming_an_experiment_follows_into_the_searches() -> None:
    text = edit.rename(parse(PAGE), "one", "reference").text
    assert text == PAGE.replace("experiment=one", "experiment=reference").replace(
        "experiment: one ", "experiment: reference "
    )


@examples(30)
@given(notebooks(), st.dictionaries(words, values, min_size=1, max_size=4), st.data())
def test_editing_a_search_changes_no_other_cell(text: str, told: dict[str, Any], data: st.DataObject) -> None:
    nb = parse(text)
    cells = [(n, cell) for n, cell in enumerate(nb.cells) if isinstance(cell, SearchCell)]
    assume(cells and len({cell.name for _, cell in cells}) == len(cells))
    index, cell = data.draw(st.sampled_from(cells))
    body = {**cell.body, "space": {**cell.body["space"], **told}}
    after = edit.put_search(nb, cell.name, body)
    found = after.cells[index]
    assert isinstance(found, SearchCell)
    assert same(found.body, body)
    assert [one.source for n, one in enumerate(after.cells) if n != index] == [
        one.source for n, one in enumerate(nb.cells) if n != index
    ]
    kept = [key for key, value in cell.body["space"].items() if key not in told or same(told[key], value)]
    assert all(f"# why {key}" in found.source for key in kept)
    assert "# few" in found.source


@examples(60)
@given(st.dictionaries(words, values, min_size=1, max_size=5), configs)
def test_what_is_put_is_what_is_read(body: dict[str, Any], space: dict[str, Any]) -> None:
    told = {**body, "space": space, "config": space}
    nb = edit.put_search(parse("Note.\n\n```yaml experiment=b\nconfig: {}\n```\n"), "a", told)
    found = nb.search("a")
    assert found is not None
    assert same(found.body, told)
    assert isinstance(nb.cells[1], ExperimentCell)
    assert parse(nb.text) == nb
