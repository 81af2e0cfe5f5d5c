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
    assert "Did you mean `one`?" in found[-1].problem.remedy


def test_a_metric_that_nobody_records_is_a_warning(description: Description) -> None:
    (problem,) = check(parse(GOOD.replace("val/accuracy", "val/acc")), description)
    assert (problem.line, problem.problem.severity) == (11, "warning")
    assert "val/accuracy" in problem.problem.remedy
