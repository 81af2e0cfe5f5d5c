"""The sides of each question, and what it says of them."""

from typing import Any

import pytest

from scalebook.training.asking.answer_rows import AnswerRow, Findings, table, times
from scalebook.training.asking.recipe import Machine, require_rate
from scalebook.training.asking.recipes import all_recipes, recipe_named
from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.notebook.claims.intervals import Confidence
from tests.training.asking.played import CONFIG


def read(description: Description, **trainer: Any) -> Experiment:
    return Experiment.read({**CONFIG, "trainer": {**CONFIG["trainer"], **trainer}}, description)


@pytest.mark.parametrize("machine", [Machine(1), Machine(2), Machine(8)], ids=["1 core", "2 cores", "8 cores"])
@pytest.mark.parametrize("question", [*all_recipes()])
def test_every_side_may_be_trained(description: Description, question: str, machine: Machine) -> None:
    base = read(description)
    sides = recipe_named(question).sides(base, base, machine)
    assert len(sides) >= 2
    assert len({side.name for side in sides}) == len(sides)
    for side in sides:
        assert [problem.message for problem in validate(side.experiment) if problem.severity == "error"] == []


@pytest.mark.parametrize(
    ("cores", "names"),
    [
        (1, ["one", "async-4-virtual"]),
        (2, ["one", "ddp-2", "async-2", "async-4-virtual"]),
        (8, ["one", "ddp-8", "async-8", "ddp-4", "async-4", "ddp-2", "async-2"]),
    ],
)
def test_more_workers_uses_the_cores_that_there_are(description: Description, cores: int, names: list[str]) -> None:
    sides = recipe_named("more-workers").sides(read(description), None, Machine(cores))
    assert [side.name for side in sides] == names
    assert [side.experiment.strategy.workers for side in sides if not side.is_simulated][1:] == [
        int(name.split("-")[1]) for name in names[1:] if not name.endswith("virtual")
    ]


def test_gpus_are_the_workers_where_there_are_some(description: Description) -> None:
    base = read(description, accelerator="gpu")
    sides = recipe_named("more-workers").sides(base, None, Machine(64, gpus=4))
    assert [side.name for side in sides] == ["one", "ddp-4", "async-4", "ddp-2", "async-2"]
    assert Machine(64, gpus=4).slots(read(description)) == 64


def test_cost_of_updates_keeps_the_number_of_workers_and_simulates_what_is_missing(description: Description) -> None:
    base = read(description, strategy={"class_path": "AsyncPS", "init_args": {"workers": 8}})
    sides = recipe_named("cost-of-updates").sides(base, None, Machine(2))
    assert all(side.is_simulated and side.experiment.strategy.workers == 8 for side in sides)


def test_a_model_without_an_argument_for_its_rate_is_not_tuned(description: Description) -> None:
    made = recipe_named("more-workers").sides(read(description), None, Machine(2))[0]
    assert require_rate(made).tuned == ("learning_rate",)
    with pytest.raises(ConfigError):
        recipe_named("a-or-b").sides(read(description), None, Machine(2))


def ratio(value: float, half: float = 0.0, **open_end: bool) -> Confidence:
    import math

    return Confidence(math.log(value), math.log(value), half, 8.0, 5, logs=True, **open_end)


def row(words: str, verdict: str, figure: str, found: Confidence, kind: Any = "measured") -> AnswerRow:
    return AnswerRow(words, words, kind, 5, 0.02, 32, {figure: found}, verdict)  # type: ignore[dict-item]


ONE = AnswerRow("one", "one process", seeds=5, rate=0.01)


@pytest.mark.parametrize(
    ("sides", "begins"),
    [
        ([row("DDP × 2", "supported", "seconds", ratio(0.57))], "Yes: DDP × 2 reaches val/loss 0.3 in 0.57x"),
        (
            [row("DDP × 2", "refuted", "seconds", ratio(1.4))],
            "No: none of the strategies tried here is faster than one process. Even the fastest, DDP × 2,",
        ),
        (
            [row("DDP × 2", "not resolved", "seconds", ratio(0.9))],
            "Not resolved: the fastest of the strategies tried here, DDP × 2,",
        ),
        (
            [row("DDP × 2", "supported", "seconds", ratio(0.7)), row("async × 2", "", "seconds", ratio(0.6))],
            "Yes: DDP × 2",
        ),
        ([row("async × 4", "supported", "samples", ratio(1.0), "simulated")], "Not resolved: this machine has no room"),
    ],
)
def test_the_first_words_answer_more_workers(sides: list[AnswerRow], begins: str) -> None:
    found = Findings("?", "", rows=[ONE, *sides], metric="val/loss", target=0.3)
    assert recipe_named("more-workers").headline(found, sides, ONE).startswith(begins)


@pytest.mark.parametrize(
    ("question", "figure", "verdict", "begins"),
    [
        ("a-or-b", "best", "supported", "A is better than one process"),
        ("a-or-b", "best", "refuted", "one process is better than A"),
        ("a-or-b", "best", "not resolved", "Not resolved, so it may be seed noise"),
        ("batch-and-rate", "seconds", "supported", "Use A, which takes 0.80x"),
        ("batch-and-rate", "seconds", "refuted", "Keep one process"),
        ("batch-and-rate", "seconds", "not resolved", "Not resolved: the best of the search, A,"),
        (
            "cost-of-updates",
            "samples",
            "supported",
            "Samples needed to reach val/loss 0.3, relative to one process: A 0.80x",
        ),
    ],
)
def test_the_first_words_answer(question: str, figure: Any, verdict: str, begins: str) -> None:
    side = row("A", verdict, figure, ratio(0.8))
    found = Findings("?", "", rows=[ONE, side], figure=figure, metric="val/loss", target=0.3)
    assert recipe_named(question).headline(found, [side], ONE).startswith(begins)


def test_a_missed_target_leaves_an_end_open() -> None:
    assert times(ratio(1.2, no_high=True)) == "more than 1.20x"
    assert times(ratio(0.5, no_low=True)) == "less than 0.50x"
    side = row("A", "refuted", "seconds", ratio(1.2, no_high=True))
    assert table(Findings("?", "", rows=[ONE, side]))[2] == ["A", "0.02", "5", "> 1.20", "measured", "refuted"]
