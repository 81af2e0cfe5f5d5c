from hypothesis import example, given

from scalebook.training.notebook.cells import BrokenCell, ComparisonCell, ExperimentCell, Note
from scalebook.training.notebook.front import is_blank
from scalebook.training.notebook.parse import parse
from tests.examples import examples
from tests.training.notebook.strategies import notebooks, rough_texts

PAGE = """---
title: Does staleness hurt?
---

# A heading

Free text.

```yaml experiment=async-4
repeats: 3   # three seeds
config:
  model: MLPClassifier
```

```python
print("kept")
```
~~~yaml comparison=both
runs: [sync, async-4]
metric: val/accuracy
x: [samples, seconds]
target: 0.97
~~~
"""


def test_reads_the_cells_of_a_page() -> None:
    nb = parse(PAGE, "page")
    assert nb.title == "Does staleness hurt?"
    kinds = [type(cell) for cell in nb.cells]
    assert kinds == [Note, ExperimentCell, Note, ComparisonCell]
    (experiment,) = nb.experiments()
    assert (experiment.name, experiment.repeats, experiment.config) == ("async-4", 3, {"model": "MLPClassifier"})
    (comparison,) = nb.comparisons()
    assert comparison.runs == ["sync", "async-4"]
    assert (comparison.metric, comparison.x, comparison.target) == ("val/accuracy", ["samples", "seconds"], 0.97)
    assert nb.lines() == [5, 9, 15, 18]


def test_the_title_is_the_front_matters_then_the_heading_then_the_name() -> None:
    assert parse("---\ntitle: A\n---\n# B\n", "c").title == "A"
    assert parse("text\n\n# B\n", "c").title == "B"
    assert parse("## B\n", "c").title == "c"
    assert parse("---\ntitle: [\n---\n", "c").title == "c"


def test_a_rule_across_the_page_is_no_front_matter() -> None:
    assert parse("---\n\ntext\n\n---\n").front == ""
    assert parse("---\ntitle: A\nnever ended\n").front == ""
    assert parse("\ufeff---\ntitle: A\n...\ntext\n").front == "\ufeff---\ntitle: A\n...\n"


def test_fences_inside_other_blocks_are_notes() -> None:
    cell = "```yaml experiment=a\nconfig: {}\n```\n"
    inside = [
        "````\n" + cell + "````\n",
        "".join(f"> {line}\n" for line in cell.splitlines()),
        "- x\n\n" + "".join(f"  {line}\n" for line in cell.splitlines()),
        "<!--\n" + cell + "-->\n",
        "".join(f"    {line}\n" for line in cell.splitlines()),
        cell.replace("yaml ", "yml "),
        cell.replace("yaml ", "yaml"),
    ]
    for text in inside:
        (only,) = parse(text).cells
        assert only == Note(text)


def test_a_fence_indented_by_three_spaces_is_a_cell() -> None:
    (cell,) = parse("   ```yaml experiment=a\n   config: {model: M}\n   ```").cells
    assert isinstance(cell, ExperimentCell)
    assert cell.config == {"model": "M"}


def _broken(text: str) -> BrokenCell:
    (cell,) = parse(text).cells
    assert isinstance(cell, BrokenCell), cell
    assert cell.source == text
    return cell


def test_what_cannot_be_read_says_why_and_where() -> None:
    bad_yaml = _broken("```yaml experiment=a\nconfig:\n  model: M\n data: [\n```\n")
    assert (bad_yaml.name, bad_yaml.key, bad_yaml.line) == ("a", "YAML", 3)
    assert _broken("```yaml experiment=a\nrepeats: 0\nconfig: {}\n```\n").line == 1
    typo = _broken("```yaml experiment=a\nconfig: {}\nrepeat: 2\n```\n")
    assert (typo.key, typo.line) == ("repeat", 2)
    assert "Did you mean `repeats`?" in typo.message
    flat = _broken("```yaml experiment=a\nmodel: M\n```\n")
    assert "Indent it below `config:`" in flat.message
    assert "is missing" in _broken("```yaml experiment=a\nrepeats: 2\n```\n").message
    assert _broken("```yaml comparison=a\nruns: [x]\nx: epochs\n```\n").key == "x"
    assert _broken("```yaml comparison=a\nruns: [x]\nscale: sqrt\n```\n").key == "scale"
    assert _broken("```yaml comparison=a\nruns: x\n```\n").key == "runs"
    assert _broken("```yaml comparison=a\nruns: [x]\ntarget: yes please\n```\n").key == "target"
    assert "without spaces" in _broken("```yaml experiment=my run\nconfig: {}\n```\n").message
    assert "not closed" in _broken("```yaml experiment=a\nconfig: {}\n").message
    assert "is empty" in _broken("```yaml experiment=a\n```\n").message
    assert "contains itself" in _broken("```yaml experiment=a\nconfig: &c {again: *c}\n```\n").message
    assert "nested deeper" in _broken("```yaml experiment=a\nconfig: {a: " + "[" * 40 + "]" * 40 + "}\n```\n").message


@examples(150)
@given(rough_texts)
@example("")
@example("\ufeff")
@example("```yaml experiment=a\r\nconfig: {}\r```")
def test_nothing_of_any_text_is_lost(text: str) -> None:
    nb = parse(text)
    assert nb.text == text
    assert parse(nb.text) == nb
    for cell, following in zip(nb.cells, nb.cells[1:], strict=False):
        assert not (isinstance(cell, Note) and isinstance(following, Note))
    assert not any(all(is_blank(line) for line in cell.source.split("\n")) for cell in nb.cells)


@examples(150)
@given(notebooks())
def test_nothing_of_a_written_notebook_is_lost(text: str) -> None:
    assert parse(text).text == text


def test_what_one_reader_does_to_a_config_another_does_not_see() -> None:
    first = parse(PAGE, "page").experiments()[0]
    before = repr(first.config)
    first.config["model"] = {"class_path": "another"}
    first.config.setdefault("trainer", {})["devices"] = 77
    assert repr(parse(PAGE, "page").experiments()[0].config) == before
