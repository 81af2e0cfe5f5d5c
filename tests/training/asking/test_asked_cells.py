"""The cells of a question in its notebook."""

from dataclasses import replace

from scalebook.training.asking.asked_cells import begun, with_seeds
from scalebook.training.experiments.description import Description
from scalebook.training.notebook.cells import AnswerCell
from scalebook.training.notebook.notebook_problems import check
from scalebook.training.notebook.parse import parse
from tests.app import answered

WANTED = AnswerCell("", "", "cost-of-updates", "own")


def test_a_new_question_stands_behind_its_experiment_and_the_same_one_goes_on() -> None:
    nb, cell = begun(parse(answered.written(), ""), WANTED)
    assert [getattr(one, "name", "") for one in nb.cells][:3] == ["", "own", "own-cost-of-updates"]
    assert cell.name == "own-cost-of-updates"
    again, same = begun(nb, replace(WANTED, budget_s=60.0))
    assert (again.text, same.name, same.budget_s) == (nb.text, cell.name, 900.0), "its budget does not shrink"
    longer, _ = begun(nb, replace(WANTED, budget_s=1800.0))
    assert longer.answers()[0].budget_s == 1800.0
    other, named = begun(nb, replace(WANTED, target=0.3))
    assert named.name == "own-cost-of-updates-2"
    assert len(other.answers()) == 3


def test_seeds_are_added_to_its_sides_alone() -> None:
    nb = parse(answered.written(), "")
    more = with_seeds(nb, nb.answers()[0], 5)
    assert [(cell.name, cell.repeats) for cell in more.experiments()] == [
        ("own", 3), ("lab-pilot", 3), *((name, 5) for name in answered.LEVELS),
    ]  # fmt: skip
    assert with_seeds(more, more.answers()[0], 4) is more


def test_a_side_without_a_search_is_no_mistake(description: Description) -> None:
    """Where there is nothing to tune."""
    nb = parse(answered.written(), "")
    assert "" in nb.answers()[0].searches.values()
    assert [one.problem for one in check(nb, description) if one.cell_name == "lab"] == []
