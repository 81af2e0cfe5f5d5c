import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.notebook.notebook_problems import check
from scalebook.training.notebook.parse import parse

GOOD = """# Page

```yaml experiment=one
config:
  model: ConvClassifier
  data: Digits
```

```yaml comparison=all
runs: [one]
metric: val/accuracy
```
"""


def test_a_good_notebook_has_no_problems(description: Description) -> None:
    assert check(parse(GOOD), description) == []


def test_each_problem_says_where_it_is(description: Description) -> None:
    text = """---
title: [
---
```yaml experiment=one
config:
  model: {class_path: ConvClassifier, init_args: {width: -2}}
  data: Digits
  trainer:
    devices: 2
    max_epoch: 3
```

```yaml experiment=one
config:
  model: ConvClassifer
  data: Digits
```
```yaml experiment=three
config:
  model: ConvClassifier
 data: Digits
```
```yaml comparison=all
metric: val/acc
runs:
  - one
  - three
  - onee
```
"""
    found = check(parse(text), description)
    places = [(one.line, one.cell_name, one.problem.key, one.problem.severity) for one in found]
    assert places == [
        (3, "front matter", "title", "error"),
        (10, "one", "trainer.max_epoch", "error"),
        (6, "one", "model.init_args.width", "error"),
        (13, "one", "name", "error"),
        (15, "one", "model", "error"),
        (21, "three", "YAML", "error"),
        (28, "all", "runs.2", "error"),
    ]
    assert "Did you mean `one`?" in found[-1].problem.fix


def test_a_metric_that_nobody_records_is_a_warning(description: Description) -> None:
    (problem,) = check(parse(GOOD.replace("val/accuracy", "val/acc")), description)
    assert (problem.line, problem.problem.severity) == (11, "warning")
    assert "val/accuracy" in problem.problem.fix


@pytest.mark.parametrize(
    ("head", "right"),
    [
        ("yaml experiment", "yaml experiment=NAME"),
        ("yaml claim", "yaml claim=NAME"),
        ("yaml expriment=a", "yaml experiment=a"),
        ("yaml comparision=a", "yaml comparison=a"),
        ("yaml experiments=a", "yaml experiment=a"),
        ("yaml search = a", "yaml search=a"),
        ("yaml search: a", "yaml search=a"),
        ("yaml Claim=a", "yaml claim=a"),
        ("yml experiment=a", "yaml experiment=a"),
        ("yamlexperiment=a", "yaml experiment=a"),
        ("experiment=a", "yaml experiment=a"),
        ("yaml {experiment=a}", "yaml experiment=a"),
    ],
)
def test_a_fence_that_is_nearly_a_cell_is_a_warning(head: str, right: str, description: Description) -> None:
    text = f"---\ntitle: t\n---\n{GOOD}\nwords\n\n```{head}\nconfig: {{}}\n```\n"
    (found,) = check(parse(text), description)
    assert (found.line, found.problem.severity) == (text[: text.rindex(f"```{head}")].count("\n") + 1, "warning")
    assert (found.problem.message, found.problem.fix) == (f"`{head}` does not begin a cell", f"Use `{right}`.")


@pytest.mark.parametrize("head", ["", "yaml", "sh", "python", "yaml title=x", "yaml example=a", "search", "text claim"])
def test_other_fences_are_text(head: str, description: Description) -> None:
    assert check(parse(f"{GOOD}\n```{head}\nconfig: {{}}\n```\n"), description) == []
    quoted = f"{GOOD}\n````\n```yaml expriment=a\n```\n````\n"
    assert check(parse(quoted), description) == []
