from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.yaml_flow import same
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ComparisonCell, ExperimentCell, Note, Notebook
from scalebook.training.notebook.parse import parse
from tests.examples import examples
from tests.training.notebook.strategies import configs, notebooks

PAGE = """Intro.

```yaml experiment=first
repeats: 2   # two seeds are enough here
config:
  # one process is the reference
  trainer:
    strategy: auto      # changed by the form
    devices: 1
    # more does not help
    max_epochs: 5
  model: {class_path: ConvClassifier, init_args: {width: 8}}  # small
  data: Digits
```
Between.

```yaml comparison=both
runs: [first, second]  # which
metric: val/loss
x: samples
target: 2
```
"""
CONFIG: dict[str, Any] = {
    "trainer": {"strategy": "auto", "devices": 1, "max_epochs": 5},
    "model": {"class_path": "ConvClassifier", "init_args": {"width": 8}},
    "data": "Digits",
}


def _changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_one_value_changes_one_line() -> None:
    config = {**CONFIG, "trainer": {"strategy": "auto", "devices": 1, "max_epochs": 9}}
    after = edit.put_experiment(parse(PAGE), "first", config, 2)
    assert after.text == PAGE.replace("max_epochs: 5", "max_epochs: 9")


def test_the_same_values_change_nothing() -> None:
    nb = parse(PAGE)
    assert edit.put_experiment(nb, "first", CONFIG, 2) is nb
    assert edit.put_comparison(nb, ComparisonCell("", "both", ["first", "second"], "val/loss", ["samples"], 2.0)) is nb


def test_a_strategy_with_arguments_replaces_a_word() -> None:
    strategy = {"class_path": "mine.AsyncPS", "init_args": {"rule": "async"}}
    config = {**CONFIG, "trainer": {"strategy": strategy, "devices": 2, "max_epochs": 5}}
    gone, new = _changed_lines(PAGE, edit.put_experiment(parse(PAGE), "first", config, 3).text)
    assert new == [
        "repeats: 3   # two seeds are enough here",
        "    strategy: {class_path: mine.AsyncPS, init_args: {rule: async}}      # changed by the form",
        "    devices: 2",
    ]
    assert len(gone) == 3


def test_a_removed_key_takes_its_comments_along() -> None:
    config = {**CONFIG, "trainer": {"strategy": "auto", "devices": 1}}
    gone, new = _changed_lines(PAGE, edit.put_experiment(parse(PAGE), "first", config, 2).text)
    assert gone == ["    # more does not help", "    max_epochs: 5"]
    assert new == []


def test_new_keys_stand_behind_the_last_one() -> None:
    config = {**CONFIG, "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "momentum": 0.9}}}
    text = edit.put_experiment(parse(PAGE), "first", config, 2).text
    assert "  data: Digits\n  optimizer:\n    class_path: torch.optim.SGD\n" in text
    config = {**CONFIG, "model": {"class_path": "ConvClassifier", "init_args": {"width": 8, "blocks": 1}}}
    text = edit.put_experiment(parse(PAGE), "first", config, 2).text
    assert "init_args: {width: 8, blocks: 1}}  # small" in text


def test_a_new_experiment_stands_where_asked() -> None:
    nb = edit.put_experiment(parse(PAGE), "second", {"model": "M"}, 2, position=2)
    assert [type(cell).__name__ for cell in nb.cells] == [
        "Note", "ExperimentCell", "ExperimentCell", "Note", "ComparisonCell",
    ]  # fmt: skip
    assert "```\n\n```yaml experiment=second\nrepeats: 2\nconfig:\n  model: M\n```\n\nBetween." in nb.text
    assert nb.text.endswith("target: 2\n```\n")


def test_into_an_empty_notebook() -> None:
    nb = edit.put_experiment(parse(""), "only", CONFIG)
    assert nb.text.startswith("```yaml experiment=only\nconfig:\n  trainer:\n    strategy: auto\n")
    assert nb.experiments()[0].config == CONFIG


def test_a_comparison_changes_in_place() -> None:
    cell = ComparisonCell("", "both", ["first"], "val/loss", ["samples"], None)
    gone, new = _changed_lines(PAGE, edit.put_comparison(parse(PAGE), cell).text)
    assert (gone, new) == (["runs: [first, second]  # which", "target: 2"], ["runs: [first]  # which"])


def test_the_scale_of_a_comparison_is_written_where_it_is_not_linear() -> None:
    cell = ComparisonCell("", "new", ["first"], scale="log")
    with_it = edit.put_comparison(parse(PAGE), cell)
    assert with_it.comparisons()[1].scale == "log"
    assert with_it.text.endswith("x: [updates]\nscale: log\n```\n")
    followed = edit.rename(with_it, "first", "reference").comparisons()[1]
    assert (followed.runs, followed.scale) == (["reference"], "log")
    linear = edit.put_comparison(with_it, ComparisonCell("", "new", ["first"]))
    assert "scale" not in linear.text


def test_a_comparison_is_renamed_alone() -> None:
    assert edit.rename_comparison(parse(PAGE), "both", "first-two").text == PAGE.replace("=both", "=first-two")


def test_renaming_follows_into_the_comparisons() -> None:
    text = edit.rename(parse(PAGE), "first", "reference").text
    assert text == PAGE.replace("experiment=first", "experiment=reference").replace("[first,", "[reference,")


def test_notes() -> None:
    nb = parse(PAGE)
    assert edit.replace_note(nb, 2, "Other.").text == PAGE.replace("Between.", "Other.")
    assert edit.insert_note(nb, 3, "New.").text == PAGE.replace("Between.\n\n", "Between.\n\nNew.\n\n")
    assert edit.remove(nb, 2).text == PAGE.replace("Between.\n\n", "")
    assert edit.replace_note(nb, 0, "  \n").text == PAGE.removeprefix("Intro.\n\n")
    moved = edit.move(nb, 3, 0)
    assert moved.text.startswith("```yaml comparison=both\n")
    assert sorted(moved.text.split()) == sorted(PAGE.split())


def test_a_note_must_not_swallow_what_follows() -> None:
    for text in ("```python\nnever closed", "<!-- never closed"):
        with pytest.raises(ConfigError, match="cells that follow"):
            edit.replace_note(parse(PAGE), 0, text)


def test_windows_line_ends_stay() -> None:
    text = PAGE.replace("\n", "\r\n")
    config = {**CONFIG, "data": {"class_path": "Digits", "init_args": {"batch_size": 8}}}
    after = edit.put_experiment(parse(text), "first", config, 2).text
    assert after.replace("\r\n", "").count("\n") == 0
    assert edit.replace_note(parse(text), 0, "Two\nlines.").text.startswith("Two\r\nlines.\r\n\r\n```")


def test_a_broken_cell_is_written_anew() -> None:
    nb = edit.put_experiment(parse("```yaml experiment=a\nconfig: [\n```\nrest\n"), "a", {"model": "M"})
    assert nb.text == "```yaml experiment=a\nconfig:\n  model: M\n```\nrest\n"


def test_names() -> None:
    nb = parse(PAGE)
    assert edit.unique_name(nb, "third") == "third"
    assert edit.unique_name(nb, "first") == "first-2"
    assert edit.unique_name(nb, "PixelCNN, 4 workers!") == "PixelCNN-4-workers"
    with pytest.raises(ConfigError, match="cannot be the name"):
        edit.put_experiment(nb, "two words", CONFIG)


@examples(50)
@given(notebooks(), configs, st.integers(1, 5), st.data())
def test_editing_one_cell_changes_no_other(
    text: str, config: dict[str, Any], repeats: int, data: st.DataObject
) -> None:
    nb = parse(text)
    cells = [(n, cell) for n, cell in enumerate(nb.cells) if isinstance(cell, ExperimentCell)]
    assume(cells and len({cell.name for _, cell in cells}) == len(cells))
    index, cell = data.draw(st.sampled_from(cells))
    after = edit.put_experiment(nb, cell.name, {**cell.config, **config}, repeats)
    assert [one.source for n, one in enumerate(after.cells) if n != index] == [
        one.source for n, one in enumerate(nb.cells) if n != index
    ]
    assert after.front == nb.front
    found = after.cells[index]
    assert isinstance(found, ExperimentCell)
    assert same(found.config, {**cell.config, **config})
    assert found.repeats == repeats
    kept = [key for key in cell.config if key not in config or same(config[key], cell.config[key])]
    assert all(f"# why {key}" in found.source for key in kept)


@examples(50)
@given(notebooks(), st.data())
def test_editing_a_note_changes_no_other_cell(text: str, data: st.DataObject) -> None:
    nb = parse(text)
    notes = [n for n, cell in enumerate(nb.cells) if isinstance(cell, Note)]
    assume(notes)
    index = data.draw(st.sampled_from(notes))
    after = edit.replace_note(nb, index, "Another text.")
    expected = Notebook(nb.front, nb.title, (*nb.cells[:index], after.cells[index], *nb.cells[index + 1 :]))
    assert after.text == expected.text


@examples(60)
@given(configs, configs, st.booleans())
def test_what_is_put_is_what_is_read(first: dict[str, Any], second: dict[str, Any], flat: bool) -> None:
    nb = edit.put_experiment(parse("Note.\n"), "a", first, 2)
    assert same(nb.experiments()[0].config, first)
    after = edit.put_experiment(nb, "a", {**second, "first": first} if flat else {**first, **second}, 2)
    assert same(after.experiments()[0].config, {**second, "first": first} if flat else {**first, **second})
