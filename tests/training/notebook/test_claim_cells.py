"""Claim cells: read, refused by key, checked against their notebook, renamed."""

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import BrokenCell, ClaimCell, Ratio
from scalebook.training.notebook.notebook_problems import check
from scalebook.training.notebook.parse import parse

PAGE = """# Page

```yaml experiment=one
repeats: 3
config: {model: ConvClassifier, data: Digits}
```

```yaml experiment=two
config: {model: ConvClassifier, data: Digits}
```

```yaml search=rates
experiment: one
objective: val/accuracy
space: {workers: {grid: [1, 2]}, learning_rate: {grid: [0.1, 0.2]}}
sampler: grid
trials: 4
seeds: 5
```
"""


def claim(body: str) -> str:
    return f"{PAGE}\n```yaml claim=c\n{body}```\n"


def test_a_claim_is_read() -> None:
    text = claim(
        "search: rates\nruns: [{workers: 2}]\nagainst: {workers: 1}\nfigure: updates\nmetric: val/accuracy\n"
        "target: 0.9\nat_most: 1.25\n"
    )
    (found,) = parse(text).claims()
    assert parse(text).text == text
    assert (found.name, found.runs, found.against) == ("c", [{"workers": 2}], {"workers": 1})
    assert (found.figure, found.metric, found.target) == ("updates", "val/accuracy", 0.9)
    assert (found.at_least, found.at_most, found.search) == (None, 1.25, "rates")
    assert found.sides == [{"workers": 1}, {"workers": 2}]
    (single,) = parse(claim("runs: one\nfigure: best\nat_least: 0.9\n")).claims()
    assert (single.runs, single.against, single.sides) == (["one"], None, ["one"])


RATIOS = (
    "runs: {of: {workers: 2}, against: {workers: 1}, search: rates, target: 0.9}\n"
    "against: {of: two, against: one, figure: seconds, metric: val/loss}\n"
    "metric: {val/accuracy: max}\ntarget: 0.5\nat_least: 1\n"
)


def test_a_side_may_be_a_ratio_with_what_its_claim_says_for_it() -> None:
    text = claim(RATIOS)
    (found,) = parse(text).claims()
    assert parse(text).text == text
    assert found.against == Ratio("two", "one", "seconds", "val/loss", 0.5, None, None)
    assert found.runs == [Ratio({"workers": 2}, {"workers": 1}, "samples", "val/accuracy", 0.9, "rates", "max")]
    assert found.sides == ["one", "two", {"workers": 1}, {"workers": 2}]
    assert found.searches == ["rates"]
    assert [(plain.runs, plain.against, plain.figure) for plain in found.plain] == [
        (["two"], "one", "seconds"),
        ([{"workers": 2}], {"workers": 1}, "samples"),
    ]


@pytest.mark.parametrize(
    ("body", "key", "words"),
    [
        (
            "runs: [{of: one, against: two}, one]\nfigure: best\nat_most: 1\n",
            "runs.1",
            "is not a ratio, but other sides",
        ),
        ("runs: [{of: one}]\nfigure: best\nat_most: 1\n", "runs.0.against", "is missing. Use an experiment"),
        ("runs: [{of: one, against: {of: one}}]\nfigure: best\nat_most: 1\n", "runs.0.against", "is not a single side"),
        ("runs: [{of: one, against: two, on: 1}]\nfigure: best\nat_most: 1\n", "runs.0.on", "is not a key of a ratio"),
        (
            "runs: [{of: one, against: two}]\nat_most: 1\n",
            "target",
            "is missing, but the figure samples needs a value to reach",
        ),
        ("runs: [{of: one, against: two, figure: time}]\nat_most: 1\n", "runs.0.figure", "is unknown"),
        (
            "runs: [{of: one, against: two, figure: best}]\nfigure: best\nat_most: 1\n",
            "figure",
            "each ratio sets this key",
        ),
        (
            "runs: [{of: one, against: two}]\nfigure: best\ntarget: 1\nat_most: 1\n",
            "target",
            "has no effect, because no ratio",
        ),
        (
            "runs: [{of: {workers: 1}, against: two}]\nfigure: best\nat_most: 1\n",
            "search",
            "is missing, but runs contains",
        ),
        ("at_most: 1\ntarget: 1\n", "runs", "is missing. Set runs: [EXPERIMENT"),
        ("runs: [one, 3]\nat_most: 1\ntarget: 1\n", "runs", "is not a list"),
        ("runs: [one]\nagainst: [two]\nat_most: 1\ntarget: 1\n", "against", "is not a single side"),
        ("runs: [one]\nfigure: time\nat_most: 1\n", "figure", "Use one of updates, samples, seconds, bytes, best"),
        ("runs: [one]\nat_most: 1\n", "target", "is missing, but the figure samples needs a value to reach"),
        ("runs: [one]\nfigure: best\ntarget: 1\nat_most: 1\n", "target", "has no effect on best"),
        ("runs: [one]\nfigure: best\n", "at_most", "at_least is missing too. Set at_most, for example at_most: 1.25."),
        ("runs: [one]\nfigure: best\nat_most: much\n", "at_most", "is not a number"),
        ("runs: [one]\nfigure: best\nat_most: 1\nat_least: 2\n", "at_least", "is 2, which is not below at_most"),
        (
            "runs: [{workers: 2}]\nfigure: best\nat_most: 1\n",
            "search",
            "is missing, but runs contains parts of a search",
        ),
        (
            "runs: [one]\nfigure: best\nat_most: 1\nchoose_by: 2\n",
            "choose_by",
            "is no longer a key of a claim, because all seeds are used both to choose the best point and to judge",
        ),
        ("runs: [one]\nfigure: best\nat_mots: 1\n", "at_mots", "is not a key of a claim. Did you mean `at_most`?"),
    ],
)
def test_what_cannot_be_read_says_which_key_and_what_to_write(body: str, key: str, words: str) -> None:
    cell = parse(claim(body)).cells[-1]
    assert isinstance(cell, BrokenCell)
    assert (cell.kind, cell.key) == ("claim", key)
    assert words in cell.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("runs: [one]\nagainst: tow\n", ["against: there is no experiment tow in this notebook. Did you mean `two`?"]),
        ("runs: [two]\nagainst: one\n", ["runs.0: refers to two, which has 1 seed. Set repeats: 3 or more in that"]),
        ("runs: [one]\nagainst: one\n", ["runs: contains a side twice"]),
        ("runs: [one]\nsearch: rates\n", [("search: has no effect, because no side is a part of this search. Remove "
                                          "it.")]),
        ("runs: [{workers: 2}]\nsearch: rate\n",
         ["search: there is no search rate in this notebook. Did you mean `rates`?"]),
        ("runs: [{workers: 3}]\nsearch: rates\n", ["runs.0.workers: is 3. Use a value from the space: 1, 2."]),
        ("runs: [{worker: 2}]\nsearch: rates\n", ["runs.0.worker: is not a dimension of the space"]),
        ("runs: [{workers: 2}]\nsearch: rates\nmetric: val/acc\n",
         ["metric: is val/acc, which none of these models records"]),
        ("runs: [{workers: 2}]\nagainst: {workers: 1}\nsearch: rates\nmetric: val/accuracy\n", []),
        ("runs: [{workers: 2}]\nsearch: rates\nmetric: {parts/memory_megabytes: min}\n", []),
        ("runs: {of: {workers: 2}, against: {workers: 1}, search: rates}\nagainst: {of: one, against: tow}\n",
         ["against.against: there is no experiment tow in this notebook"]),
        ("runs: {of: {workers: 3}, against: {workers: 1}, search: rates}\n",
         ["runs.0.of.workers: is 3. Use a value from the space: 1, 2."]),
        ("runs: {of: {workers: 2}, against: {workers: 1}, search: rate}\n",
         ["runs.0.search: there is no search rate in this notebook"]),
        ("search: rates\nruns: {of: {workers: 2}, against: {workers: 1}}\nagainst: {of: {workers: 1}, against: one}\n",
         ["runs: contains the same side in both ratios. Compare four different sides."]),
    ],
)  # fmt: skip
def test_a_claim_is_checked_against_its_notebook(body: str, said: list[str], description: Description) -> None:
    metric = "" if "metric" in body else "metric: val/accuracy\n"
    problems = check(parse(claim(f"{body}{metric}figure: best\nat_most: 1\n")), description)
    assert len(problems) == len(said), problems
    for problem, words in zip(problems, said, strict=True):
        assert str(problem.problem).startswith(words)
        assert problem.cell_name == "c"


def test_an_experiment_is_renamed_in_claims_too() -> None:
    nb = edit.rename(
        parse(claim("runs: [one]   # the new one\nagainst: two\nfigure: best\nat_most: 1\n")), "two", "base"
    )
    (found,) = nb.claims()
    assert isinstance(found, ClaimCell)
    assert (found.runs, found.against) == (["one"], "base")
    assert "runs: [one]   # the new one\nagainst: base\n" in nb.text
    (renamed,) = edit.rename(nb, "one", "first").claims()
    assert renamed.runs == ["first"]


def test_an_experiment_is_renamed_in_ratios_too() -> None:
    nb = edit.rename(parse(claim(RATIOS)), "two", "base")
    assert "against: {of: base, against: one, figure: seconds, metric: val/loss}\n" in nb.text
    assert nb.text == claim(RATIOS.replace("of: two", "of: base")).replace("experiment=two", "experiment=base")
